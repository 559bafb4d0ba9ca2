"""Functions whose optimum is known, and a search for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.landscapes import branin, hartmann
from holdfast.tune.search import Proposal, Searcher, SearchPlan
from holdfast.tune.search.sample import uniform

__all__ = ["BRANIN", "HARTMANN", "branin", "hartmann", "losses_of"]

BRANIN = {"x": uniform(-5, 10), "y": uniform(0, 15)}  # optimum 0.398
HARTMANN = {f"x{at}": uniform(0, 1) for at in range(6)}  # optimum -3.322


def losses_of(
    searcher: Searcher,
    space: dict[str, Any],
    function: Callable[[dict[str, Any]], float],
    budget: int,
) -> list[float]:
    """Return the values that a search comes to, in order."""
    plan = SearchPlan(searcher, space, num_samples=budget, metric="loss", mode="min")
    losses = []
    while isinstance(proposal := plan.next(), Proposal):
        losses.append(function(proposal.config))
        plan.on_complete(proposal.trial_id, {"loss": losses[-1], "training_iteration": 1})
    assert len(losses) == budget
    return losses

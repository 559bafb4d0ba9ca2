"""Functions whose optimum is known, and a search for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from holdfast.tune.search import Proposal, Searcher, SearchPlan
from holdfast.tune.search.sample import uniform

BRANIN = {"x": uniform(-5, 10), "y": uniform(0, 15)}  # optimum 0.398
HARTMANN = {f"x{at}": uniform(0, 1) for at in range(6)}  # optimum -3.322

_HEIGHTS = (1.0, 1.2, 3.0, 3.2)
_SLOPES = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
_PEAKS = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)


def branin(config: dict[str, Any]) -> float:
    x, y = config["x"], config["y"]
    bowl = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def hartmann(config: dict[str, Any]) -> float:
    total = 0.0
    for height, slopes, peak in zip(_HEIGHTS, _SLOPES, _PEAKS, strict=True):
        far = sum(slopes[at] * (config[f"x{at}"] - peak[at]) ** 2 for at in range(6))
        total += height * math.exp(-far)
    return -total


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

"""A search that is killed anywhere goes on as if it had not been.

A script of calls is played to one plan. Another gets the same calls, but dies between them: it is
made anew from its state, as JSON, before every call; or it is made anew once, from an older state,
and told again what happened since, with proposals taken from the record.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.tune.search import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    Proposal,
    Repeater,
    Searcher,
    SearchPlan,
)
from holdfast.tune.search.bohb import TuneBOHB
from holdfast.tune.search.hyperopt import HyperOptSearch
from holdfast.tune.search.optuna import OptunaSearch
from holdfast.tune.search.sample import (
    choice,
    grid_search,
    loguniform,
    qloguniform,
    randint,
    sample_from,
    uniform,
)

SPACE = {
    "x": uniform(-1, 1),
    "lr": loguniform(1e-4, 1),
    "deep": {"n": randint(1, 20), "q": qloguniform(0.5, 8, 0.5)},
    "opt": choice([{"kind": "sgd", "m": uniform(0, 1)}, ("adam", 1), object()]),
    "twice": sample_from(lambda config: config["x"] * 2),
    "fixed": {"a": (1, 2), "o": object()},
}
GRIDS = {**SPACE, "g": grid_search([1, 2, 3])}


def optuna_search() -> Searcher:
    pytest.importorskip("optuna")
    return OptunaSearch()


def seeded(make: Callable[[int], Searcher]) -> Callable[[], SearchPlan]:
    """Return what makes plans whose searchers have seeds of their own: the state must carry it."""

    def made() -> SearchPlan:
        return SearchPlan(make(0), SPACE, num_samples=-1, metric="loss", mode="min")

    return made


PLANS: dict[str, Callable[[], SearchPlan]] = {
    "variants": lambda: SearchPlan(BasicVariantGenerator(), GRIDS, num_samples=50),
    "limited": lambda: SearchPlan(None, GRIDS, num_samples=-1, max_concurrent=4),
    "hyperopt": seeded(lambda _: HyperOptSearch(n_initial_points=3)),
    "bohb": seeded(lambda _: TuneBOHB(max_concurrent=6)),
    "batch": seeded(
        lambda _: ConcurrencyLimiter(HyperOptSearch(n_initial_points=2), 3, batch=True)
    ),
    "repeated": seeded(lambda _: Repeater(HyperOptSearch(n_initial_points=2), 3)),
    "both": seeded(lambda _: ConcurrencyLimiter(Repeater(TuneBOHB(), 2), 4)),
    "optuna": seeded(lambda _: optuna_search()),
}

losses = st.sampled_from([0.0, 1.0, -3.5, 1e9, math.inf, math.nan, None]) | st.floats(-10, 10)
which = st.integers(0, 30)
calls = st.one_of(
    st.just(("next", 0, 0.0)),
    st.just(("next", 0, 0.0)),
    st.tuples(st.just("end"), which, losses),
    st.tuples(st.just("end"), which, losses),
    st.tuples(st.just("result"), which, losses),
    st.tuples(st.sampled_from(["fail", "pause", "unpause", "revive"]), which, st.none()),
)
scripts = st.lists(calls, min_size=5, max_size=60)
Call = tuple[str, int, Any]


def result_of(loss: Any, step: int) -> dict[str, Any]:
    result: dict[str, Any] = {"training_iteration": step, "other": 1.0}
    if loss is not None:
        result |= {"loss": loss, "hyperband_info": {"budget": 1 + step % 3}}
    return result


class Play:
    """A plan, and the record of what it proposed."""

    def __init__(self, plan: SearchPlan) -> None:
        self.plan = plan
        self.made: list[str] = []
        self.ended: set[str] = set()
        self.outputs: list[Any] = []

    def copy_to(self, plan: SearchPlan) -> Play:
        other = Play(plan)
        plan.set_state(json.loads(json.dumps(self.plan.get_state())))
        other.made, other.ended = list(self.made), set(self.ended)
        other.outputs = list(self.outputs)
        return other

    def state(self) -> str:
        return json.dumps(self.plan.get_state(), sort_keys=True)

    def oldest(self) -> int:
        """Return the place of the oldest trial that has not ended."""
        return next(at for at, one in enumerate(self.made) if one not in self.ended)

    def call(self, step: int, call: Call, recorded: Any = None) -> None:
        kind, at, loss = call
        if kind == "next":
            self.propose(recorded)
        if kind == "next" or not self.made:
            return
        trial_id = self.made[at % len(self.made)]
        if kind == "result":
            self.plan.on_result(trial_id, result_of(loss, step))
        elif kind == "pause":
            self.plan.on_pause(trial_id)
        elif kind == "unpause":
            self.plan.on_unpause(trial_id)
        elif kind == "revive":
            if trial_id in self.ended:
                self.ended.discard(trial_id)
                self.plan.on_revive(trial_id)
        elif trial_id not in self.ended:
            self.ended.add(trial_id)
            if kind == "end":
                self.plan.on_complete(trial_id, result_of(loss, step))
            else:
                self.plan.on_complete(trial_id, error=True)

    def propose(self, recorded: Any) -> None:
        if recorded is None:
            found = self.plan.next()
        elif recorded == "nothing":
            found = None
        elif recorded == "FINISHED":
            found = recorded
        else:
            found = Proposal.from_data(recorded)
            self.plan.recall(found)
        if isinstance(found, Proposal):
            self.made.append(found.trial_id)
            self.outputs.append(json.loads(json.dumps(found.to_data())))
        else:
            self.outputs.append(found or "nothing")


@pytest.mark.req("U-078")
@pytest.mark.parametrize("name", PLANS)
def test_dying_before_every_call_changes_nothing(name: str) -> None:
    make = PLANS[name]

    @settings(max_examples=12 if name == "optuna" else 25)
    @given(scripts)
    def check(script: list[Call]) -> None:
        one = Play(make())
        other = one.copy_to(make())
        for step, call in enumerate(script):
            other = other.copy_to(make())
            one.call(step, call)
            other.call(step, call)
        for _ in range(3):
            one.propose(None)
            other.propose(None)

        assert one.outputs == other.outputs
        assert one.state() == other.state()

    check()


@pytest.mark.req("U-004", "U-078")
@pytest.mark.parametrize("name", PLANS)
def test_an_old_state_and_the_record_since_are_enough(name: str) -> None:
    make = PLANS[name]

    @settings(max_examples=12 if name == "optuna" else 25)
    @given(scripts, st.integers(0, 60), st.integers(0, 60))
    def check(script: list[Call], a: int, b: int) -> None:
        kept, killed = sorted((a % (len(script) + 1), b % (len(script) + 1)))
        one = Play(make())
        other = one
        for step, call in enumerate(script):
            if step == kept:
                other = one.copy_to(make())
            one.call(step, call)
        if other is one:
            other = one.copy_to(make())
        for step in range(kept, len(script)):
            recorded = None
            if step < killed and script[step][0] == "next":
                recorded = one.outputs[len(other.outputs)]
            other.call(step, script[step], recorded)
        for _ in range(3):
            one.propose(None)
            other.propose(None)

        assert one.outputs == other.outputs
        if name != "optuna":  # which leaves notes that nobody reads where it was asked
            assert one.state() == other.state()

    check()


@pytest.mark.req("U-078")
@pytest.mark.parametrize("name", PLANS)
def test_a_long_search_that_dies_now_and_then_is_the_same(name: str) -> None:
    """Long enough for every model to be asked."""
    make = PLANS[name]
    one = Play(make())
    other = one.copy_to(make())
    for step in range(80):
        if step % 6 == 5:
            other = other.copy_to(make())
        for play in (one, other):
            play.call(step, ("next", 0, None))
        if step % 3:
            for play in (one, other):
                play.call(step, ("end", play.oldest(), math.sin(step)))

    assert one.outputs == other.outputs
    assert one.state() == other.state()
    assert len(one.made) > 50

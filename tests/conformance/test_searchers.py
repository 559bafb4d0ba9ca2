"""Every searcher we ship, under the suite that we ship; and wrong ones, which it finds."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import pytest

from holdfast.testing.suites.searcher import SearcherSuite
from holdfast.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from holdfast.tune.search.bohb import TuneBOHB
from holdfast.tune.search.hyperopt import HyperOptSearch
from holdfast.tune.search.optuna import OptunaSearch
from holdfast.tune.search.sample import grid_search, uniform


class TestVariants(SearcherSuite):
    def new(self) -> Searcher:
        return BasicVariantGenerator(random_state=3)


class TestVariantsWithGrids(SearcherSuite):
    space: ClassVar[Any] = {"x": uniform(0, 1), "g": grid_search([1, 2, 3])}

    def new(self) -> Searcher:
        return BasicVariantGenerator(points_to_evaluate=[{"x": 0.25}], random_state=3)


class TestHyperOpt(SearcherSuite):
    def new(self) -> Searcher:
        return HyperOptSearch(n_initial_points=4, random_state_seed=3)


class TestBOHB(SearcherSuite):
    def new(self) -> Searcher:
        return TuneBOHB(seed=3)


class TestOptuna(SearcherSuite):
    def new(self) -> Searcher:
        return OptunaSearch(seed=3)


class TestLimited(SearcherSuite):
    def new(self) -> Searcher:
        return ConcurrencyLimiter(HyperOptSearch(n_initial_points=2, random_state_seed=3), 2)


class TestLimitedInBatches(SearcherSuite):
    def new(self) -> Searcher:
        searcher = HyperOptSearch(n_initial_points=2, random_state_seed=3)
        return ConcurrencyLimiter(searcher, 2, batch=True)


class TestRepeated(SearcherSuite):
    def new(self) -> Searcher:
        return Repeater(HyperOptSearch(n_initial_points=2, random_state_seed=3), 2)


# ---------------------------------------------------------------------- a user's, and wrong ones


class Walker(Searcher):
    """Goes from the best config so far a step to a random side."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(metric="loss", mode="min")
        self.best: tuple[float, float] | None = None
        self.asked: dict[str, float] = {}
        self.random = random.Random(seed)

    def set_search_properties(self, *_: Any, **__: Any) -> bool:
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        at = 0.5 if self.best is None else self.best[1]
        self.asked[trial_id] = min(1.0, max(0.0, at + self.random.uniform(-0.1, 0.1)))
        return {"x": self.asked[trial_id]}

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,
    ) -> None:
        x = self.asked.pop(trial_id)
        loss = (result or {}).get("loss")
        is_better = isinstance(loss, float) and (self.best is None or loss < self.best[0])
        if is_better:
            self.best = (float(loss), x)  # type: ignore[arg-type]


class OfWalkers(SearcherSuite):
    space: ClassVar[Any] = {"x": uniform(0, 1)}
    kind: ClassVar[type[Walker]] = Walker

    def new(self) -> Searcher:
        return self.kind(seed=3)


class TestOwn(OfWalkers):
    pass


class Forgetful(Walker):
    """Keeps its best config where no state finds it."""

    _everybody: ClassVar[list[float]] = []

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self._everybody.append(0.0)
        super().suggest(trial_id)
        self.asked[trial_id] = (len(self._everybody) % 97) / 97
        return {"x": self.asked[trial_id]}


class Outside(Walker):
    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.asked[trial_id] = 1.5
        return {"x": 1.5}


class Impatient(Walker):
    """Waits for the end of a trial that has failed."""

    def suggest(self, trial_id: str) -> dict[str, Any]:
        if len(self.asked) > 1:
            return None  # type: ignore[return-value]
        return super().suggest(trial_id)

    def on_trial_complete(
        self,
        trial_id: str,
        result: dict[str, Any] | None = None,
        error: bool = False,
    ) -> None:
        if not error:
            super().on_trial_complete(trial_id, result, error)


class Strict(Walker):
    """Believes that every result has a number in it."""

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        assert float(result["loss"]) < float("inf")


@pytest.mark.parametrize(
    ("kind", "found_by"),
    [
        (Forgetful, "test_a_searcher_that_is_made_anew_before_each_call_proposes_the_same"),
        (Forgetful, "test_an_earlier_state_and_the_record_since_lead_to_the_same"),
        (Outside, "test_proposals_are_in_the_space"),
        (Impatient, "test_trials_that_fail_are_followed_by_others"),
        (Strict, "test_results_that_say_nothing_break_nothing"),
    ],
)
def test_a_searcher_that_is_wrong_is_found(kind: type[Walker], found_by: str) -> None:
    suite = OfWalkers()
    suite.kind = kind  # type: ignore[misc]
    with pytest.raises((AssertionError, KeyError, TypeError, ValueError)):
        getattr(suite, found_by)()

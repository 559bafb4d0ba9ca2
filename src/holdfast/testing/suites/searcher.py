"""What every search algorithm must do.

Subclass `SearcherSuite` and give it a fixture named `searcher` that returns a function that makes
one, always with the same seed; it is given the space, and looks for the least `loss`:

    class TestMySearcher(SearcherSuite):
        @pytest.fixture
        def searcher(self):
            return lambda: MySearcher(seed=1)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from holdfast.tune.search import Proposal, Searcher, SearchPlan
from holdfast.tune.search.sample import choice, loguniform, qrandint, randint, uniform

Make = Callable[[], Searcher]

SPACE: dict[str, Any] = {
    "x": uniform(-1.0, 1.0),
    "lr": loguniform(1e-5, 1e-1),
    "layers": randint(1, 6),
    "width": qrandint(16, 128, 16),
    "kind": choice(["a", "b", "c"]),
}


class SearcherSuite:
    """The contract of `holdfast.tune.search.Searcher`, as tests.

    Attributes:
        trials: How many are drawn.
        learns: Whether it goes by outcomes, and so must be told a metric.
    """

    trials = 24
    learns = True

    def plan(self, searcher: Make) -> SearchPlan:
        """Return a search of the space."""
        goal: dict[str, Any] = {"metric": "loss", "mode": "min"} if self.learns else {}
        return SearchPlan(searcher(), dict(SPACE), num_samples=self.trials, **goal)

    def drawn(self, plan: SearchPlan, count: int) -> list[dict[str, Any]]:
        """Return the configs of so many trials, each of which is over before the next is drawn."""
        configs: list[dict[str, Any]] = []
        for _ in range(count):
            proposal = plan.next()
            assert isinstance(proposal, Proposal), f"{proposal!r} after {len(configs)} trials"
            configs.append(proposal.config)
            plan.on_complete(proposal.trial_id, {"loss": loss(proposal.config)})
        return configs

    def test_every_value_is_in_its_domain(self, searcher: Make) -> None:
        for config in self.drawn(self.plan(searcher), self.trials):
            assert set(config) == set(SPACE)
            for name, domain in SPACE.items():
                assert domain.is_valid(config[name]), f"{name}={config[name]!r}"
            assert type(config["layers"]) is int
            assert config["width"] % 16 == 0

    def test_it_draws_as_many_as_are_wanted_and_says_that_there_are_no_more(
        self, searcher: Make
    ) -> None:
        plan = self.plan(searcher)
        self.drawn(plan, self.trials)

        assert plan.next() == Searcher.FINISHED

    def test_the_same_seed_draws_the_same(self, searcher: Make) -> None:
        first, second = (self.drawn(self.plan(searcher), self.trials) for _ in range(2))

        assert first == second

    def test_it_goes_on_the_same_from_its_state(self, searcher: Make) -> None:
        wanted = self.drawn(self.plan(searcher), self.trials)
        for cut in (1, self.trials // 2, self.trials - 1):
            plan = self.plan(searcher)
            self.drawn(plan, cut)
            again = self.plan(searcher)
            again.set_state(json.loads(json.dumps(plan.get_state())))

            assert self.drawn(again, self.trials - cut) == wanted[cut:]

    def test_trials_that_fail_or_tell_nothing_do_not_end_the_search(self, searcher: Make) -> None:
        plan = self.plan(searcher)
        outcomes: list[tuple[dict[str, Any] | None, bool]] = [
            (None, True), ({"loss": float("nan")}, False), ({"loss": float("inf")}, False),
            ({"other": 1}, False), ({"loss": 1.0}, True), ({"loss": 1.0}, False),
        ]  # fmt: skip
        for at in range(self.trials):
            proposal = plan.next()
            assert isinstance(proposal, Proposal)
            result, is_error = outcomes[at % len(outcomes)]
            plan.on_complete(proposal.trial_id, result, error=is_error)

        assert plan.next() == Searcher.FINISHED


def loss(config: dict[str, Any]) -> float:
    """Return what a config of the space costs: least at x = 0.25 with kind b."""
    return float((config["x"] - 0.25) ** 2 + (0.0 if config["kind"] == "b" else 0.3))

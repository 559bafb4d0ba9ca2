"""What every scheduler must do.

Subclass `SchedulerSuite` and give it a fixture named `scheduler` that returns a function that makes
one, always with the same seed; it judges `loss`, less is better, by `training_iteration`:

    class TestMyScheduler(SchedulerSuite):
        @pytest.fixture
        def scheduler(self):
            return lambda: MyScheduler(metric="loss", mode="min", seed=1)

Studies are played in memory: the real machine, with trials made of arithmetic.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.budget import Budget
from holdfast.core.study_rules import Rules
from holdfast.testing.study_play import Driver, Script, play
from holdfast.tune.schedulers import TrialScheduler
from holdfast.tune.search import BasicVariantGenerator
from holdfast.tune.search.generator import SearchPlan
from holdfast.tune.search.sample import uniform

Make = Callable[[], TrialScheduler]


class SchedulerSuite:
    """The contract of `holdfast.tune.schedulers.TrialScheduler`, as tests.

    Attributes:
        trials: How many a study has.
        steps: At which iteration a trial is done.
        space: Where configs come from; there is a number `x` in it.
    """

    trials = 6
    steps = 8
    space: Mapping[str, Any] = {"x": uniform(0.0, 1.0)}

    def script(self, scheduler: Make, **more: Any) -> Script:
        """Return a study that this scheduler judges."""

        def search() -> SearchPlan:
            searcher = BasicVariantGenerator(random_state=5)
            return SearchPlan(searcher, dict(self.space), num_samples=self.trials)

        def score(config: Mapping[str, Any], iteration: int) -> dict[str, Any]:
            return {"loss": (config["x"] - 0.3) ** 2 + 1.0 / iteration}

        told = {"score": score, "steps": self.steps, "room": 3, "saves_every": 2}
        return Script(scheduler=scheduler, search=search, **{**told, **more})

    def test_every_trial_comes_to_an_end(self, scheduler: Make) -> None:
        for room in (1, 3, self.trials):
            played = play(self.script(scheduler, room=room))

            assert len(played.trials) == self.trials
            assert {one["status"] for one in played.trials.values()} == {"TERMINATED"}

    def test_the_same_results_lead_to_the_same_decisions(self, scheduler: Make) -> None:
        first, second = (play(self.script(scheduler)) for _ in range(2))

        assert first.decisions == second.decisions
        assert first.trials == second.trials

    def test_killed_at_any_event_it_decides_the_same(self, scheduler: Make) -> None:
        script = self.script(scheduler)
        wanted = play(script)
        for cut in range(1, len(wanted.events)):
            found = play(script, past=wanted.events[:cut])
            left = wanted.decisions[bisect_left(wanted.decided, cut) :]

            assert found.decisions == left, f"cut after {cut} events"
            assert found.trials == wanted.trials, f"cut after {cut} events"

    def test_killed_after_any_state_it_decides_the_same(self, scheduler: Make) -> None:
        script = self.script(scheduler, states_every=5)
        wanted = play(script)
        for cut in range(1, len(wanted.events), 3):
            found = play(script, past=wanted.events[:cut])

            assert found.trials == wanted.trials, f"cut after {cut} events"

    def test_its_state_is_json_and_all_there_is(self, scheduler: Make) -> None:
        driver = Driver(self.script(scheduler), [])
        driver.play()
        state = driver.study.judges.scheduler.get_state()
        again = scheduler()
        again.set_state(json.loads(json.dumps(state)))

        assert again.get_state() == state

    def test_the_count_of_a_result_is_that_of_the_weights(self, scheduler: Make) -> None:
        """Also when trials go on from each other, are paused, and die."""

        def dies(number: int, step: int, attempt: int) -> bool:
            return (number + step) % 5 == 0 and attempt % 2 == 1

        rules = Rules(budget=Budget(failures=None))
        for saves_every in (0, 1, 3):
            script = self.script(scheduler, saves_every=saves_every, dies=dies, rules=rules)
            played = play(script)
            told = [data["result"] for kind, data in played.events if kind == "trial_result"]

            assert [one["training_iteration"] for one in told] == [one["trained"] for one in told]
            assert len(played.trials) == self.trials

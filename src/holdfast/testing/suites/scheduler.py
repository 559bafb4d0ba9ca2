"""The conformance suite of `TrialScheduler`.

Subclass `SchedulerSuite` and define how to make a scheduler, each time with the same arguments.
Trials report `score`, of which more is better, and count `training_iteration` from 1:

    class TestMyScheduler(SchedulerSuite):
        def new(self) -> TrialScheduler:
            return MyScheduler(metric="score", mode="max")

Each test plays studies without processes. Some tests call the scheduler alone: trials report, are
lost, fail, end by themselves and are stopped, in a random order whose seed is the number of the
study that a failing test prints. Others run the real state machine of studies, with trials that
only compute. The death of a driver is simulated by a new scheduler that gets the state of the old
one, through JSON as in a journal.
"""

from __future__ import annotations

import json
import math
import random
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from holdfast.core.run.budget import Budget
from holdfast.core.study.events import TrialReported
from holdfast.core.study.rules import Rules
from holdfast.core.study.trial import Status
from holdfast.testing.fake_study import MISSING, FakeStudy
from holdfast.testing.study_play import Script, play
from holdfast.tune.schedulers import TrialScheduler
from holdfast.tune.search import BasicVariantGenerator, SearchPlan
from holdfast.tune.search.sample import uniform
from holdfast.tune.trial import Trial

DECISIONS = frozenset(
    {
        TrialScheduler.CONTINUE,
        TrialScheduler.PAUSE,
        TrialScheduler.STOP,
        TrialScheduler.NOOP,
    }
)
_ODD_SCORES = (0.0, 1.0, 1.0, -2.5, 3.0, math.nan, math.inf, -math.inf, None, "high", MISSING)


class SchedulerSuite:
    """The contract of `holdfast.tune.schedulers.TrialScheduler`, as tests.

    Attributes:
        trials: How many trials a study has.
        slots: How many run at once.
        steps: How many results a trial reports until it ends by itself.
        studies: How many studies a test plays that calls the scheduler alone.
        space: The search space for configs; it must have a number `lr`.
    """

    trials = 6
    slots = 3
    steps = 8
    studies = 20
    space: ClassVar[Mapping[str, Any]] = {"lr": uniform(0.0, 1.0)}

    def new(self) -> TrialScheduler:
        """Return a new scheduler, each time with the same arguments."""
        raise NotImplementedError

    # ------------------------------------------------------------------ decisions

    def test_every_trial_comes_to_an_end(self) -> None:
        """No trial is paused for ever, with one trial or many, on one slot or many."""
        for trials in (1, 2, self.trials):
            for slots in (1, self.slots, self.trials):
                study = FakeStudy(self.new(), slots=slots)
                for _ in range(trials):
                    study.add()
                study.run(until=self.steps)

                assert _unfinished(study) == [], f"{trials} trials on {slots} slots"

    def test_decisions_are_valid(self) -> None:
        for number in range(self.studies):
            study = self._played(number)
            decisions = {entry[3] for entry in study.log if entry[0] == "decided"}

            assert decisions <= DECISIONS, f"study {number}"

    def test_whatever_happens_the_rest_comes_to_an_end(self) -> None:
        for number in range(self.studies):
            study = self._played(number)
            study.run(until=self.steps)

            assert _unfinished(study) == [], f"study {number}"

    def test_results_that_say_nothing_break_nothing(self) -> None:
        for number in range(self.studies):
            chance = random.Random(number)
            study = FakeStudy(
                self.new(), slots=self.slots, score=lambda *_, c=chance: c.choice(_ODD_SCORES)
            )
            for _ in range(self.trials):
                study.add()
            study.run(until=self.steps)

            assert _unfinished(study) == [], f"study {number}"

    def test_a_chosen_trial_can_start_and_asking_changes_nothing(self) -> None:
        """`FakeStudy.choose` asks twice, and `fill` checks that the trial waits and fits."""
        for number in range(self.studies):
            study = self._played(number)
            before = study.scheduler.get_state()
            study.choose()

            assert study.scheduler.get_state() == before, f"study {number}"

    # ------------------------------------------------------------------ crashes

    def test_a_scheduler_that_is_made_anew_after_each_call_decides_the_same(self) -> None:
        for number in range(self.studies):
            begun = self.new().get_state()
            whole = self._played(number, begun)
            killed = self._played(number, begun, remade=self.new)

            assert killed.log == whole.log, f"study {number}"
            assert killed.files == whole.files, f"study {number}"
            configs = [trial.config for trial in killed.trials]
            assert configs == [trial.config for trial in whole.trials], f"study {number}"

    def test_it_needs_no_notice_of_its_own_decisions(self) -> None:
        """A trial that it stopped is over, and a trial that was lost is not a new one."""
        for number in range(self.studies):
            begun = self.new().get_state()
            quiet = self._played(number, begun)
            chatty = self._played(number, begun, is_chatty=True)

            assert chatty.log == quiet.log, f"study {number}"

    def test_saved_to_a_file_it_decides_the_same(self, tmp_path: Any) -> None:
        def copied(study: FakeStudy) -> None:
            study.scheduler.save(tmp_path / "scheduler")
            study.scheduler = self.new()
            study.scheduler.restore(tmp_path / "scheduler")

        for number in range(self.studies):
            begun = self.new().get_state()
            whole = self._played(number, begun)
            halfway = self._played(number, begun, halfway=copied)

            assert halfway.log == whole.log, f"study {number}"

    # ------------------------------------------------------------------ the study machine

    def test_killed_at_any_event_a_study_ends_the_same(self) -> None:
        script = self._script()
        whole = play(script)
        for cut in range(1, len(whole.events)):
            resumed = play(script, past=whole.events[:cut])
            left = whole.decisions[bisect_left(whole.decided, cut) :]

            assert resumed.decisions == left, f"cut after {cut} events"
            assert resumed.trials == whole.trials, f"cut after {cut} events"

    def test_killed_after_any_state_a_study_ends_the_same(self) -> None:
        script = self._script(states_every=5)
        whole = play(script)
        for cut in range(1, len(whole.events), 3):
            resumed = play(script, past=whole.events[:cut])

            assert resumed.trials == whole.trials, f"cut after {cut} events"

    def test_the_count_of_a_result_is_that_of_the_weights(self) -> None:
        """Also when trials go on from each other, are paused, and die."""

        def dies(number: int, step: int, attempt: int) -> bool:
            return (number + step) % 5 == 0 and attempt % 2 == 1

        rules = Rules(budget=Budget(failures=None))
        for saves_every in (0, 1, 3):
            script = self._script(saves_every=saves_every, dies=dies, rules=rules)
            events = play(script).events
            results = [data["result"] for kind, data in events if kind == TrialReported.kind]
            counts = [result["training_iteration"] for result in results]

            assert counts == [result["trained"] for result in results], f"{saves_every=}"

    def _script(self, **options: Any) -> Script:
        """Return a study with this scheduler that begins the same each time it is played.

        Some schedulers draw a seed when they are made.
        """
        begun = self.new().get_state()

        def new_scheduler() -> TrialScheduler:
            scheduler = self.new()
            scheduler.set_state(json.loads(json.dumps(begun)))
            return scheduler

        def search() -> SearchPlan:
            searcher = BasicVariantGenerator(random_state=5)
            return SearchPlan(searcher, self.space, num_samples=self.trials)

        def score(config: Mapping[str, Any], iteration: int) -> dict[str, Any]:
            return {"score": -((config["lr"] - 0.3) ** 2) - 1.0 / iteration}

        usual = {"score": score, "steps": self.steps, "room": self.slots, "saves_every": 2}
        return Script(scheduler=new_scheduler, search=search, **{**usual, **options})

    # ------------------------------------------------------------------

    def _played(
        self,
        number: int,
        begun: dict[str, Any] | None = None,
        *,
        remade: Callable[[], TrialScheduler] | None = None,
        is_chatty: bool = False,
        halfway: Callable[[FakeStudy], None] = lambda _: None,
    ) -> FakeStudy:
        """Return a study after random events, with `number` as their seed.

        The schedulers of two studies to be compared must begin in one state, `begun`: some draw a
        seed when they are made.
        """
        scheduler = self.new()
        if begun is not None:
            scheduler.set_state(json.loads(json.dumps(begun)))
        study = FakeStudy(
            scheduler,
            slots=self.slots,
            score=lambda trial, time: _score(number, trial, time),
            remade=remade,
            is_chatty=is_chatty,
        )
        chance = random.Random(number)
        count = 5 * self.trials
        for turn in range(count):
            if turn == count // 2:
                halfway(study)
            self._make_something_happen(study, chance)
        return study

    def _make_something_happen(self, study: FakeStudy, chance: random.Random) -> None:
        event, which = chance.randrange(16), chance.randrange(1 << 16)
        running = [trial for trial in study.trials if trial.status == Status.RUNNING]
        waiting = [trial for trial in study.get_trials() if trial.status != Status.RUNNING]
        if (event < 3 or not study.get_trials()) and len(study.trials) < self.trials:
            study.add()
        elif event == 3 and running:
            study.lose(running[which % len(running)])
        elif event == 4 and running:
            study.lose(running[which % len(running)], for_good=True)
        elif event == 5 and running:
            study.complete(running[which % len(running)])
        elif event == 6 and waiting:
            study.complete(waiting[which % len(waiting)])  # stopped by the user
        elif running:
            study.report(running[which % len(running)])
        study.fill()


def _score(number: int, trial: Trial, time: int) -> float:
    return random.Random(f"{number} {trial.number} {time}").uniform(-1, 1)


def _unfinished(study: FakeStudy) -> list[str]:
    return [f"{trial.trial_id} is {trial.status}" for trial in study.get_trials()]

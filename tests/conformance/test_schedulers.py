"""Every scheduler we ship, under the suite that we ship; and wrong ones, which it finds."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from holdfast.testing.suites.scheduler import SchedulerSuite
from holdfast.tune.schedulers import (
    PB2,
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TrialScheduler,
)
from holdfast.tune.schedulers.resource_changing_scheduler import DistributeResourcesToTopJob
from holdfast.tune.search.sample import randint, uniform
from holdfast.tune.trial import StudyView, Trial

BY_STEP: dict[str, Any] = {"time_attr": "training_iteration", "metric": "score", "mode": "max"}
MUTATIONS = {"lr": uniform(0, 1), "net": {"width": randint(1, 9)}}


class TestFIFO(SchedulerSuite):
    def new(self) -> TrialScheduler:
        return FIFOScheduler()


class TestAsyncHyperBand(SchedulerSuite):
    def new(self) -> TrialScheduler:
        return AsyncHyperBandScheduler(**BY_STEP, max_t=9, reduction_factor=2, brackets=2)


class TestHyperBand(SchedulerSuite):
    def new(self) -> TrialScheduler:
        return HyperBandScheduler(**BY_STEP, max_t=4, reduction_factor=2)


class TestHyperBandThatGoesOn(SchedulerSuite):
    def new(self) -> TrialScheduler:
        return HyperBandScheduler(**BY_STEP, max_t=3, reduction_factor=3, stop_last_trials=False)


class TestHyperBandForBOHB(SchedulerSuite):
    def new(self) -> TrialScheduler:
        return HyperBandForBOHB(**BY_STEP, max_t=4, reduction_factor=2)


class TestMedianStoppingRule(SchedulerSuite):
    def new(self) -> TrialScheduler:
        return MedianStoppingRule(**BY_STEP, grace_period=2, min_samples_required=2)


class TestPBT(SchedulerSuite):
    def new(self) -> TrialScheduler:
        return PopulationBasedTraining(
            **BY_STEP,
            perturbation_interval=2,
            hyperparam_mutations=MUTATIONS,
            quantile_fraction=0.4,
        )


class TestSynchronousPBT(SchedulerSuite):
    def new(self) -> TrialScheduler:
        return PopulationBasedTraining(
            **BY_STEP, perturbation_interval=1, hyperparam_mutations=MUTATIONS, synch=True
        )


class TestPB2(SchedulerSuite):
    studies = 5  # each exploit fits a Gaussian process

    def new(self) -> TrialScheduler:
        return PB2(**BY_STEP, perturbation_interval=1, hyperparam_bounds={"lr": [0, 1]}, seed=3)


class TestResourceChanging(SchedulerSuite):
    def new(self) -> TrialScheduler:
        inner = AsyncHyperBandScheduler(**BY_STEP, max_t=9, reduction_factor=2)
        top = DistributeResourcesToTopJob(metric="score", mode="max")
        return ResourceChangingScheduler(inner, top)


class TestSynchronousPBTWithResources(SchedulerSuite):
    def new(self) -> TrialScheduler:
        inner = PopulationBasedTraining(
            **BY_STEP, perturbation_interval=2, hyperparam_mutations=MUTATIONS, synch=True
        )
        return ResourceChangingScheduler(
            inner, DistributeResourcesToTopJob(metric="score", mode="max")
        )


# ---------------------------------------------------------------------- a user's, and wrong ones


class Halves(FIFOScheduler):
    """Stops a trial that is worse at its third step than the best so far at theirs."""

    def __init__(self) -> None:
        self.best: float | None = None

    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        score = result.get("score")
        if result["training_iteration"] != 3 or not isinstance(score, float) or score != score:
            return self.CONTINUE
        is_best = self.best is None or score >= self.best
        if is_best:
            self.best = score
        return self.CONTINUE if is_best else self.STOP


class OfHalves(SchedulerSuite):
    kind: ClassVar[type[Halves]] = Halves

    def new(self) -> TrialScheduler:
        return self.kind()


class TestOwn(OfHalves):
    pass


class Forgetful(Halves):
    """Keeps what it knows where no state finds it."""

    def __init__(self) -> None:
        super().__init__()
        self._told: Any = None

    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        made_anew = id(self) != self._told
        self._told = id(self)
        return self.CONTINUE if made_anew else super().on_trial_result(view, trial, result)


class Undecided(Halves):
    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        return "MAYBE"


class Sleepy(Halves):
    """Pauses trials and never wakes them."""

    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        return self.PAUSE

    def choose_trial_to_run(self, view: StudyView) -> Trial | None:
        found = super().choose_trial_to_run(view)
        return found if found is not None and found.status == "PENDING" else None


class Strict(Halves):
    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        return self.STOP if float(result["score"]) < 0 else self.CONTINUE


class Counting(Halves):
    """Counts how often it was asked whom to run."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def choose_trial_to_run(self, view: StudyView) -> Trial | None:
        self.asked += 1
        return super().choose_trial_to_run(view)


@pytest.mark.parametrize(
    ("kind", "found_by"),
    [
        (Forgetful, "test_a_scheduler_that_is_made_anew_after_each_call_decides_the_same"),
        (Undecided, "test_decisions_are_valid"),
        (Sleepy, "test_every_trial_comes_to_an_end"),
        (Strict, "test_results_that_say_nothing_break_nothing"),
        (Counting, "test_a_chosen_trial_can_start_and_asking_changes_nothing"),
    ],
)
def test_a_scheduler_that_is_wrong_is_found(kind: type[Halves], found_by: str) -> None:
    suite = OfHalves()
    suite.kind = kind  # type: ignore[misc]
    with pytest.raises((AssertionError, KeyError, TypeError, ValueError)):
        getattr(suite, found_by)()

from __future__ import annotations

import math
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.testing.fake_study import FakeStudy
from holdfast.tune.schedulers import MedianStoppingRule
from holdfast.tune.trial import Trial


def median(**kwargs: object) -> MedianStoppingRule:
    given = {"metric": "score", "mode": "max", "grace_period": 1, "min_samples_required": 1}
    return MedianStoppingRule(**{**given, **kwargs})  # type: ignore[arg-type]


def study_of(scheduler: MedianStoppingRule, curves: list[list[Any]]) -> FakeStudy:
    """Return a study whose trials report what is written for them, step by step."""

    def score(trial: Trial, time: int) -> Any:
        return curves[trial.number][time - 1]

    study = FakeStudy(scheduler, slots=9, score=score)
    for _ in curves:
        study.add()
    study.fill()
    return study


def test_the_hand_worked_example() -> None:
    """Means of the others up to time 3: 2, 4 and 9; their median is 4."""
    others = [[1, 2, 3], [4, 4, 4], [0, 9, 18]]
    for best, expected in [(3.9, "STOP"), (4.0, "CONTINUE"), (4.1, "CONTINUE")]:
        study = study_of(median(min_samples_required=3), [*others, [0, best, 0]])
        for trial in study.trials[:3]:
            for _ in others[0]:
                study.report(trial)
        study.report(study.trials[3], 2)

        assert study.report(study.trials[3]) == expected


def test_of_an_even_number_the_median_lies_in_the_middle() -> None:
    for best, expected in [(2.9, "STOP"), (3.0, "CONTINUE")]:
        study = study_of(median(min_samples_required=2), [[2], [4], [best]])
        study.report(study.trials[0])
        study.report(study.trials[1])

        assert study.report(study.trials[2]) == expected


def test_min_is_max_of_the_negative() -> None:
    for best, expected in [(-2.9, "STOP"), (-3.0, "CONTINUE")]:
        study = study_of(median(min_samples_required=2, mode="min"), [[-2], [-4], [best]])
        study.report(study.trials[0])
        study.report(study.trials[1])

        assert study.report(study.trials[2]) == expected


def test_results_before_the_grace_period_count_for_the_best_but_for_no_mean() -> None:
    study = study_of(median(grace_period=2), [[100, 5], [6, 0]])
    assert study.report(study.trials[0]) == "CONTINUE"
    study.report(study.trials[0])
    assert study.report(study.trials[1]) == "CONTINUE"

    assert study.report(study.trials[1]) == "CONTINUE"  # 6 is more than 5


def test_means_reach_only_as_far_as_the_trial_that_is_judged() -> None:
    study = study_of(median(), [[1, 100], [2]])
    study.report(study.trials[0])
    study.report(study.trials[0])

    assert study.report(study.trials[1]) == "CONTINUE"


def test_a_trial_that_has_not_come_as_far_is_not_compared_with() -> None:
    study = study_of(median(), [[100], [1, 1]])
    study.report(study.trials[0])

    assert study.report(study.trials[1]) == "STOP"
    study = study_of(median(), [[100], [1, 1]])
    study.report(study.trials[0])
    assert study.report(study.trials[1], 2) == "CONTINUE"


def test_a_finished_trial_is_still_compared_with() -> None:
    study = study_of(median(), [[100], [1]])
    study.report(study.trials[0])
    study.complete(study.trials[0])

    assert study.report(study.trials[1]) == "STOP"


def test_what_is_not_a_number_counts_for_no_mean_and_is_never_good_enough() -> None:
    study = study_of(median(), [[5, math.nan], [math.nan, 4]])
    study.report(study.trials[0])
    assert study.report(study.trials[1]) == "STOP"
    study = study_of(median(), [[5, math.nan], [1, 5]])
    study.report(study.trials[0])
    study.report(study.trials[0])

    assert study.report(study.trials[1], 2) == "CONTINUE"


def test_a_step_that_is_done_again_counts_once_and_as_it_came_out_then() -> None:
    """0 and 6 are of an attempt that is over; the mean is 0, not 1.5 or 3."""
    study = study_of(median(), [[0, 6], [1, 1]])
    trial, other = study.trials
    study.report(trial)
    study.report(trial)
    study.lose(trial)
    study.fill()
    study.report(trial, 1, score=0)
    study.report(trial, 2, score=0)

    assert study.report(other, 2) == "CONTINUE"


def test_with_too_few_others_a_trial_gives_way_to_those_that_wait() -> None:
    study = FakeStudy(median(min_samples_required=2), slots=1)
    first, second = study.add(), study.add()
    study.fill()

    assert study.report(first) == "PAUSE"
    study.fill()
    assert second.status == "RUNNING"
    assert study.report(second) == "PAUSE"
    assert study.choose() is first


def test_without_waiting_trials_a_trial_continues() -> None:
    study = FakeStudy(median(min_samples_required=2), slots=2)
    first, _ = study.add(), study.add()
    study.fill()

    assert study.report(first) == "CONTINUE"


def test_it_gives_way_only_after_its_slice_of_time() -> None:
    study = FakeStudy(median(min_samples_required=2, min_time_slice=3), slots=1)
    first, _ = study.add(), study.add()
    study.fill()

    assert [study.report(first) for _ in range(4)] == ["CONTINUE"] * 3 + ["PAUSE"]


def test_trials_that_give_way_take_turns() -> None:
    study = FakeStudy(median(min_samples_required=9), slots=1)
    for _ in range(3):
        study.add()
    study.run(until=4)
    turns = [entry[1] for entry in study.log if entry[0] == "decided"]

    assert turns == ["t0", "t1", "t2"] * 4


def test_without_a_hard_stop_bad_trials_run_after_all_others_to_their_end() -> None:
    study = FakeStudy(median(hard_stop=False), slots=1, score=lambda trial, _: -trial.number)
    for _ in range(3):
        study.add()
    study.run(until=3)
    turns = [(entry[1], entry[3]) for entry in study.log if entry[0] == "decided"]

    assert turns == [
        ("t0", "PAUSE"), ("t1", "PAUSE"), ("t2", "PAUSE"),
        ("t0", "CONTINUE"), ("t0", "CONTINUE"),
        ("t1", "CONTINUE"), ("t1", "CONTINUE"), ("t2", "CONTINUE"), ("t2", "CONTINUE"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"grace_period": -1}, "grace_period=-1: less than 0"),
        ({"min_samples_required": 0}, "min_samples_required=0: less than 1"),
        ({"min_time_slice": None}, "min_time_slice=None: not a number"),
        ({"hard_stop": 3}, "hard_stop=3"),
    ],
)
def test_bad_arguments_are_named(bad: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        median(**bad)

    assert says in str(caught.value)

from __future__ import annotations

import logging
import math

import pytest

from holdfast.errors import ConfigError
from holdfast.testing.fake_study import MISSING, FakeStudy
from holdfast.tune.schedulers import ASHAScheduler, AsyncHyperBandScheduler
from holdfast.tune.schedulers.async_hyperband import milestones_for


def asha(**kwargs: object) -> AsyncHyperBandScheduler:
    given = {"metric": "score", "mode": "max", "max_t": 81, "reduction_factor": 3, "seed": 1}
    return AsyncHyperBandScheduler(**{**given, **kwargs})  # type: ignore[arg-type]


def decisions(scheduler: AsyncHyperBandScheduler, scores: list[float], time: int = 1) -> list[str]:
    """Return what becomes of trials that come to the same time one after the other."""
    study = FakeStudy(scheduler, slots=99, score=lambda trial, _: scores[trial.number])
    trials = [study.add() for _ in scores]
    study.fill()
    return [study.report(trial, time) for trial in trials]


def test_both_names_are_the_same_scheduler() -> None:
    assert ASHAScheduler is AsyncHyperBandScheduler


@pytest.mark.parametrize(
    ("max_t", "grace", "factor", "expected"),
    [
        (81, 1, 3, [1, 3, 9, 27, 81]),
        (100, 1, 4, [1, 4, 16, 64]),
        (100, 5, 2, [5, 10, 20, 40, 80]),
        (243, 1, 3, [1, 3, 9, 27, 81, 243]),  # by logarithms of floats the last one gets lost
        (1000, 1, 10, [1, 10, 100, 1000]),  # and here
        (7, 7, 2, [7]),
    ],
)
def test_rungs_are_powers_up_to_and_including_max_t(
    max_t: int, grace: int, factor: int, expected: list[int]
) -> None:
    assert milestones_for(max_t, grace, factor) == expected


def test_the_hand_worked_table_of_one_rung() -> None:
    """Factor 3: what a trial must reach lies at two thirds of those that were there before it.

    10 alone; [10] -> 10; [10, 20] -> 10 + 2/3 * 10 = 16.7; [10, 15, 20] -> 15 + 1/3 * 5 = 16.7;
    [10, 15, 18, 20] -> 18; [10, 15, 17.9, 18, 20] -> 17.9 + 2/3 * 0.1 = 17.97.
    """
    scores = [10.0, 20.0, 15.0, 18.0, 17.9, 17.98]

    assert decisions(asha(), scores) == [
        "CONTINUE", "CONTINUE", "STOP", "CONTINUE", "STOP", "CONTINUE",
    ]  # fmt: skip


def test_min_is_max_of_the_negative() -> None:
    scores = [10.0, 20.0, 15.0, 18.0, 17.9, 17.98]

    assert decisions(asha(mode="min"), [-score for score in scores]) == decisions(asha(), scores)


def test_an_equal_score_is_good_enough() -> None:
    assert decisions(asha(), [5.0, 5.0, 5.0]) == ["CONTINUE"] * 3


def test_of_27_trials_in_the_worst_order_each_rung_keeps_a_third_of_those_before() -> None:
    """The best comes first, so every later trial is compared with better ones."""
    study = FakeStudy(asha(max_t=9), slots=1, score=lambda trial, _: -trial.number)
    study.run(supply=27)

    assert study.reached() == [9] + [1] * 26


def test_in_the_best_order_no_trial_is_stopped_before_max_t() -> None:
    study = FakeStudy(asha(max_t=9), slots=1)
    study.run(supply=27)

    assert study.reached() == [9] * 27


def test_no_trial_ends_before_the_grace_period() -> None:
    scheduler = asha(grace_period=5)
    study = FakeStudy(scheduler, score=lambda trial, _: -trial.number)
    trials = [study.add() for _ in range(4)]
    study.fill()

    assert {study.report(trial) for _ in range(4) for trial in trials} == {"CONTINUE"}
    assert [study.report(trial) for trial in trials] == ["CONTINUE", "STOP", "STOP", "STOP"]


def test_max_t_ends_a_trial_however_good_it_is() -> None:
    assert decisions(asha(), [1e9], time=81) == ["STOP"]


def test_max_t_ends_a_trial_that_does_not_tell_how_good_it_is() -> None:
    study = FakeStudy(asha(), score=lambda *_: MISSING)
    trial = study.add()
    study.fill()

    assert study.report(trial, 80) == "CONTINUE"
    assert study.report(trial, 81) == "STOP"


def test_without_stop_last_trials_the_best_go_on_beyond_max_t() -> None:
    scheduler = asha(stop_last_trials=False)

    assert decisions(scheduler, [2.0, 1.0, 3.0], time=81) == ["CONTINUE", "STOP", "CONTINUE"]


def test_a_trial_that_jumps_over_rungs_is_entered_at_the_highest_alone() -> None:
    """Else its late score would be compared with early ones of others."""
    study = FakeStudy(asha(), score=lambda trial, time: 100 if trial.number == 0 else 1)
    late, early = study.add(), study.add()
    study.fill()
    study.report(late, 5)
    study.report(late, 6)

    assert study.report(early, 1) == "CONTINUE"
    assert study.report(early, 3) == "STOP"


def test_a_step_that_is_done_again_is_not_entered_again() -> None:
    study = FakeStudy(asha(), score=lambda trial, _: [1, 3, 2][trial.number])
    first, second, third = study.add(), study.add(), study.add()
    study.fill()
    study.report(first)
    study.report(second)
    study.lose(second)
    study.fill()
    study.report(second)  # entered twice, 3 would be what the next one must reach

    assert study.report(third) == "STOP"
    assert study.scheduler.debug_string().count("1: 3 trials") == 1


def test_a_trial_that_ends_by_itself_is_compared_with() -> None:
    study = FakeStudy(asha(), score=lambda trial, _: [9, 1][trial.number])
    first, second = study.add(), study.add()
    study.fill()
    first.last_result = {"training_iteration": 1, "score": 9}
    study.complete(first)

    assert study.report(second) == "STOP"


def test_not_a_number_is_worse_than_all_and_no_measure_for_others() -> None:
    assert decisions(asha(), [math.nan, 1.0, math.nan, 1.0]) == [
        "CONTINUE", "CONTINUE", "STOP", "CONTINUE",
    ]  # fmt: skip


def test_infinite_scores_are_compared() -> None:
    assert decisions(asha(), [-math.inf, math.inf, 1.0, -math.inf, math.inf]) == [
        "CONTINUE", "CONTINUE", "CONTINUE", "STOP", "CONTINUE",
    ]  # fmt: skip


def test_a_missing_metric_causes_one_warning_with_the_reported_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    study = FakeStudy(asha(metric="acc"))
    trial = study.add()
    study.fill()
    with caplog.at_level(logging.WARNING):
        verdicts = [study.report(trial) for _ in range(3)]

    assert verdicts == ["CONTINUE"] * 3
    [record] = caplog.records
    assert "'acc'" in record.message
    assert "score, time_total_s, training_iteration" in record.message


def test_a_nested_metric_is_found() -> None:
    study = FakeStudy(asha(metric="eval/acc"))
    first, second = study.add(), study.add()
    study.fill()
    study.report(first, eval={"acc": 2.0})

    assert study.report(second, eval={"acc": 1.0}) == "STOP"


def test_trials_are_drawn_to_brackets_by_how_many_rungs_these_have() -> None:
    """Three brackets of 3, 2 and 1 rungs: e^3 : e^2 : e^1, that is 66.5 %, 24.5 % and 9 %."""
    scheduler = asha(max_t=9, brackets=3)
    study = FakeStudy(scheduler, slots=2000, score=lambda *_: 0)
    for _ in range(2000):
        study.start(study.add())
    for trial in study.trials:
        study.report(trial, 9 - 1)
    lines = scheduler.debug_string().splitlines()[1:]
    counts = [
        sum(int(part.split()[1]) for part in line.split(": ", 1)[1].split(" | ")) for line in lines
    ]

    assert counts[2] == 0  # its only rung is at 9
    assert 1270 < counts[0] < 1390
    assert 430 < counts[1] < 550


def test_the_same_seed_draws_the_same_brackets() -> None:
    def drawn(seed: int) -> str:
        study = FakeStudy(asha(max_t=9, brackets=3, seed=seed), slots=50, score=lambda *_: 0)
        for _ in range(50):
            study.add()
        study.fill()
        for trial in study.trials:
            study.report(trial, 8)
        return str(study.scheduler.get_state()["rungs"])

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_more_brackets_than_rungs_leave_some_trials_alone() -> None:
    study = FakeStudy(asha(max_t=3, brackets=9, seed=0), slots=60, score=lambda t, _: -t.number)
    for _ in range(60):
        study.add()
    study.fill()

    assert {study.report(trial, 2) for trial in list(study.trials)} == {"CONTINUE", "STOP"}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"max_t": 0}, "max_t=0: not above 0"),
        ({"max_t": 2, "grace_period": 3}, "max_t=2: below grace_period=3"),
        ({"grace_period": -1}, "grace_period=-1: not above 0"),
        ({"reduction_factor": 1}, "reduction_factor=1: not above 1"),
        ({"reduction_factor": "3"}, "reduction_factor='3': not a number"),
        ({"brackets": 0}, "brackets=0: less than 1"),
        ({"brackets": 1.5}, "brackets=1.5: not a whole number"),
        ({"mode": "maximum"}, "mode='maximum': must be 'min' or 'max'"),
        ({"metric": ""}, "metric='': empty"),
        ({"time_attr": None}, "time_attr=None"),
        ({"seed": 1.5}, "seed=1.5"),
    ],
)
def test_bad_arguments_are_named(bad: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        asha(**bad)

    assert says in str(caught.value)
    assert "AsyncHyperBandScheduler" in str(caught.value)


def test_all_bad_arguments_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        asha(max_t=0, brackets=0, mode="up")

    assert str(caught.value).count("\n  - ") == 3


def test_a_trial_is_refused_while_metric_or_mode_is_missing() -> None:
    study = FakeStudy(AsyncHyperBandScheduler())
    with pytest.raises(ConfigError, match="metric=None and mode=None"):
        study.add()

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from holdfast.core.study.trial import Status
from holdfast.errors import ConfigError
from holdfast.testing.fake_study import MISSING, FakeStudy
from holdfast.tune.schedulers import HyperBandForBOHB, HyperBandScheduler
from holdfast.tune.schedulers.bracket import plans_for
from holdfast.tune.trial import Trial


def hyperband(**kwargs: object) -> HyperBandScheduler:
    given = {"metric": "score", "mode": "max", "max_t": 9}
    return HyperBandScheduler(**{**given, **kwargs})  # type: ignore[arg-type]


def test_the_brackets_for_81_and_3_are_those_of_the_paper() -> None:
    """Algorithm 1: n = ceil(5 * 3^s / (s + 1)) trials, r = 81 / 3^s to begin with."""
    assert [(plan.room, list(plan.milestones)) for plan in plans_for(81, 3)] == [
        (5, [81]),
        (8, [27, 81]),
        (15, [9, 27, 81]),
        (34, [3, 9, 27, 81]),
        (81, [1, 3, 9, 27, 81]),
    ]


def test_milestones_end_at_max_t_also_if_that_is_no_power() -> None:
    assert [(plan.room, list(plan.milestones)) for plan in plans_for(100, 3)][-1] == (
        81,
        [1, 3, 11, 33, 100],
    )


def test_no_bracket_begins_at_0() -> None:
    """log3(60) is 3.7, and floor(3.7) = 3."""
    assert [plan.milestones[0] for plan in plans_for(60, 3)] == [60, 20, 6, 2]


@pytest.mark.parametrize(
    ("max_t", "eta", "rooms"),
    [  # s = 0, 1, ...: ceil((s_max + 1) / (s + 1) * eta^s), s_max = floor(log(max_t) / log(eta))
        (200, 3, [5, 8, 15, 34, 81]),  # log3(200) = 4.82
        (60, 3, [4, 6, 12, 27]),  # 3.73
        (81, 3, [5, 8, 15, 34, 81]),  # 4, as in the paper's Table 1
        (242, 3, [5, 8, 15, 34, 81]),  # 4.996
        (243, 3, [6, 9, 18, 41, 98, 243]),  # 5
        (7, 2, [3, 3, 4]),  # 2.8
        (8, 2, [4, 4, 6, 8]),  # 3
        (1, 3, [1]),
        (1.5, 3, [1]),
        (100, 4, [4, 8, 22, 64]),  # 3.3
        (10, 2.5, [3, 4, 7]),  # 2.51
    ],
)
def test_brackets_hold_as_many_trials_as_algorithm_1_says(
    max_t: float, eta: float, rooms: list[int]
) -> None:
    assert [plan.room for plan in plans_for(max_t, eta)] == rooms


def test_exact_powers_lose_no_milestone_to_floats() -> None:
    assert [plan.milestones[0] for plan in plans_for(243, 3)] == [243, 81, 27, 9, 3, 1]
    assert [plan.milestones[0] for plan in plans_for(1000, 10)] == [1000, 100, 10, 1]


def test_a_whole_band_runs_as_the_table_says() -> None:
    """How many trials came how far, bracket by bracket, with ceil(n / 3) going on each time.

    s=0: 5 to 81. s=1: 8 to 27, 3 to 81. s=2: 15 to 9, 5 to 27, 2 to 81. s=3: 34 to 3, 12 to 9,
    4 to 27, 2 to 81. s=4: 81 to 1, 27 to 3, 9 to 9, 3 to 27, 1 to 81, as in the paper's own table.
    """
    study = FakeStudy(hyperband(max_t=81), slots=7)
    study.run(supply=143)
    ends = [Counter(study.reached()[first:last]) for first, last in
            [(0, 5), (5, 13), (13, 28), (28, 62), (62, 143)]]  # fmt: skip

    assert ends == [
        {81: 5},
        {27: 5, 81: 3},
        {9: 10, 27: 3, 81: 2},
        {3: 22, 9: 8, 27: 2, 81: 2},
        {1: 54, 3: 18, 9: 6, 27: 2, 81: 1},
    ]
    assert set(study.statuses()) == {"TERMINATED"}


def test_the_best_of_a_bracket_go_on() -> None:
    """The last bracket of 9 trials, of which the later ones are better: 1, then 3, then 9."""
    study = FakeStudy(hyperband(), slots=3)
    study.run(supply=17)

    assert study.reached()[8:] == [1, 1, 1, 1, 1, 1, 3, 3, 9]


def test_min_keeps_the_lowest() -> None:
    study = FakeStudy(hyperband(mode="min"), slots=3)
    study.run(supply=17)

    assert study.reached()[8:] == [9, 3, 3, 1, 1, 1, 1, 1, 1]


def test_of_equals_the_ones_that_were_made_first_go_on() -> None:
    study = FakeStudy(hyperband(), slots=3, score=lambda *_: 1)
    study.run(supply=17)

    assert study.reached()[8:] == [9, 3, 3, 1, 1, 1, 1, 1, 1]


def test_not_a_number_loses_against_everything() -> None:
    scores = [0] * 8 + [math.nan, -math.inf, 3, math.nan, 2, 1, 0, -1, -2]
    study = FakeStudy(hyperband(), slots=9, score=lambda trial, _: scores[trial.number])
    study.run(supply=17)

    assert study.reached()[8:] == [1, 1, 9, 1, 3, 3, 1, 1, 1]


@pytest.mark.req("U-083")
def test_a_trial_that_waits_is_paused_and_leaves_its_place_to_others() -> None:
    study = FakeStudy(
        hyperband(max_t=3), slots=1
    )  # brackets of 2 that go to 3, of 3 that meet at 1
    trials = [study.add() for _ in range(5)]
    study.fill()
    for _ in range(3):
        study.report(trials[0])
    study.fill()
    for _ in range(3):
        study.report(trials[1])
    study.fill()

    assert study.report(trials[2]) == "PAUSE"
    assert study.choose() is trials[3]
    study.fill()
    assert study.report(trials[3]) == "PAUSE"
    study.fill()
    assert study.report(trials[4]) == "CONTINUE"  # the best of three, and the last to come
    assert study.statuses() == ["TERMINATED"] * 4 + ["RUNNING"]


@pytest.mark.req("U-083")
def test_a_survivor_goes_on_from_where_it_paused() -> None:
    study = FakeStudy(hyperband(max_t=3), slots=1, score=lambda trial, _: -trial.number)
    study.run(supply=5)
    best = [entry[2] for entry in study.log if entry[0] == "decided" and entry[1] == "t2"]

    assert best == [1, 2, 3]


@pytest.mark.parametrize("trials", range(1, 20))
def test_any_number_of_trials_comes_to_an_end(trials: int) -> None:
    """Also fewer than a bracket has room for: no trial may wait for them forever."""
    for slots in (1, 3, 20):
        study = FakeStudy(hyperband(), slots=slots)
        study.run(supply=trials)

        assert study.statuses() == ["TERMINATED"] * trials
        assert max(study.reached()) == 9


def test_a_bracket_that_is_never_filled_is_halved_by_its_entrants() -> None:
    """4 instead of 9 trials: 2 go on, then 1."""
    study = FakeStudy(hyperband(), slots=3)
    study.run(supply=12)

    assert study.reached()[8:] == [1, 1, 3, 9]


def test_a_limit_on_how_many_trials_there_are_does_not_stop_everything() -> None:
    """As with a ConcurrencyLimiter: no new trial while four are not over, paused ones included."""
    study = FakeStudy(hyperband(max_t=27), slots=2)
    for _ in range(2000):
        if len(study.get_trials()) < 4 and len(study.trials) < 30:
            study.add()
            continue
        study.fill()
        running = [trial for trial in study.trials if trial.status == Status.RUNNING]
        if not running:
            break
        study.report(running[0])

    assert study.statuses() == ["TERMINATED"] * 30


def test_a_trial_that_ends_early_is_not_waited_for() -> None:
    study = FakeStudy(hyperband(), slots=9)
    trials = [study.add() for _ in range(17)]
    for trial in trials[:8]:
        study.start(trial)
        study.complete(trial)
    study.fill()
    for trial in trials[8:16]:
        study.report(trial)
    assert {trial.status for trial in trials[8:16]} == {"PAUSED"}
    study.complete(trials[16])

    assert [trial.trial_id for trial in study.get_trials()] == ["t13", "t14", "t15"]
    assert study.choose() is trials[13]


def test_a_trial_that_fails_for_good_is_not_waited_for() -> None:
    study = FakeStudy(hyperband(), slots=9)
    trials = [study.add() for _ in range(8)]
    for trial in trials[:3]:
        study.start(trial)
        study.complete(trial)
    study.fill()
    for trial in trials[3:7]:
        study.report(trial, 3)
    study.lose(trials[7], for_good=True)

    assert [trial.trial_id for trial in study.get_trials()] == ["t5", "t6"]


def test_a_trial_that_fails_and_comes_back_is_waited_for_in_its_bracket() -> None:
    study = FakeStudy(hyperband(), slots=9)
    trials = [study.add() for _ in range(8)]
    for trial in trials[:3]:
        study.start(trial)
        study.complete(trial)
    study.fill()
    for trial in trials[3:7]:
        study.report(trial, 3)
    study.lose(trials[7])

    assert len(study.get_trials()) == 5
    study.fill()
    assert study.report(trials[7], 3) == "CONTINUE"
    assert [trial.trial_id for trial in study.get_trials()] == ["t6", "t7"]


def test_a_trial_that_vanishes_does_not_block_others() -> None:
    study = FakeStudy(hyperband(), slots=9)
    trials = [study.add() for _ in range(8)]
    for trial in trials[:3]:
        study.start(trial)
        study.complete(trial)
    study.fill()
    for trial in trials[3:7]:
        study.report(trial, 3)
    trials[7].status = Status.TERMINATED
    study.run()

    assert set(study.statuses()) == {"TERMINATED"}
    assert study.reached()[3:7] == [3, 3, 9, 9]  # of five that came, two go on, as always


def test_a_trial_that_lost_what_it_had_at_the_milestone_is_waited_for_again() -> None:
    study = FakeStudy(hyperband(), slots=9)
    trials = [study.add() for _ in range(8)]
    for trial in trials[:3]:
        study.start(trial)
        study.complete(trial)
    study.fill()
    study.report(trials[3], 3)
    study.start(trials[3])
    study.report(trials[3], 2)
    for trial in trials[4:]:
        study.report(trial, 3)

    assert len(study.get_trials()) == 5
    study.report(trials[3], 3)
    assert len(study.get_trials()) == 2


def test_a_trial_that_jumps_over_milestones_is_judged_at_each() -> None:
    study = FakeStudy(hyperband(max_t=27), slots=99)
    trials = [study.add() for _ in range(4 + 6 + 12 + 27)]
    bracket = trials[-27:]
    study.fill()
    for trial in bracket[:-1]:
        study.report(trial, 10)

    assert study.report(bracket[-1], 10) == "CONTINUE"  # 27, 9, 3 at once: 10 is beyond 1, 3 and 9
    assert [trial for trial in study.get_trials() if trial in bracket] == [bracket[-1]]


def test_a_result_without_the_metric_is_judged_by_the_next_one_that_has_it() -> None:
    study = FakeStudy(
        hyperband(max_t=3), slots=9, score=lambda t, time: MISSING if time == 1 else t.number
    )
    trials = [study.add() for _ in range(5)]
    study.fill()

    assert [study.report(trial) for trial in trials[2:]] == ["CONTINUE"] * 3
    assert [study.report(trial) for trial in trials[2:]] == ["PAUSE", "PAUSE", "CONTINUE"]


def test_a_study_that_never_tells_the_metric_ends_at_max_t() -> None:
    study = FakeStudy(hyperband(), slots=3, score=lambda *_: MISSING)
    study.run(supply=17)

    assert study.reached() == [9] * 17


def test_without_stop_last_trials_the_best_go_on() -> None:
    study = FakeStudy(hyperband(stop_last_trials=False), slots=3)
    study.run(supply=17, until=12)

    assert study.reached()[8:] == [1, 1, 1, 1, 1, 1, 3, 3, 12]


def test_brackets_fill_up_from_the_smallest_and_then_a_new_band_begins() -> None:
    study = FakeStudy(hyperband(), slots=1)
    for _ in range(19):
        study.add()

    assert [line.split(": ")[1].split(" trials")[0] for line in
            study.scheduler.debug_string().splitlines()[1:]] == [
        "3 of 3", "5 of 5", "9 of 9", "2 of 3",
    ]  # fmt: skip


def test_a_trial_that_was_never_added_runs_all_the_same() -> None:
    """As after an error of its own when the trial was added."""
    study = FakeStudy(hyperband())
    trial = Trial("stray")
    study.trials.append(trial)

    assert study.choose() is trial


def test_brackets_that_are_over_are_forgotten() -> None:
    study = FakeStudy(hyperband(), slots=5)
    study.run(supply=17 * 3)

    assert study.scheduler.get_state()["brackets"] == []


def test_it_can_only_work_with_trials_that_save_and_results_that_come_at_once() -> None:
    assert hyperband().requires_checkpoints
    assert not hyperband().supports_buffered_results


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"max_t": 0}, "max_t=0: less than 1"),
        ({"reduction_factor": 1}, "reduction_factor=1: not above 1"),
        ({"mode": 1}, "mode=1"),
        ({"stop_last_trials": "no"}, "stop_last_trials='no'"),
    ],
)
def test_bad_arguments_are_named(bad: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        hyperband(**bad)

    assert says in str(caught.value)


def bohb() -> HyperBandForBOHB:
    return HyperBandForBOHB(metric="score", mode="max", max_t=9)


def test_for_bohb_the_largest_bracket_is_filled_first() -> None:
    study = FakeStudy(bohb(), slots=3)
    study.run(supply=17)

    assert study.reached() == [1, 1, 1, 1, 1, 1, 3, 3, 9, 3, 3, 3, 9, 9, 9, 9, 9]


def test_for_bohb_results_at_a_milestone_tell_the_budget_they_ran_for() -> None:
    budgets: dict[int, Any] = {}

    class Watched(HyperBandForBOHB):
        def on_trial_result(self, view, trial: Trial, result) -> str:  # type: ignore[no-untyped-def]
            decision = super().on_trial_result(view, trial, result)
            budgets[result["training_iteration"]] = result["hyperband_info"].get("budget")
            assert result["hyperband_info"]["milestone"] in (1, 3, 9)
            return decision

    study = FakeStudy(Watched(metric="score", mode="max", max_t=9), slots=9)
    study.run(supply=9)

    assert {time: budget for time, budget in budgets.items() if budget} == {1: 1, 3: 3, 9: 9}
    assert set(budgets) == set(range(1, 10))


@pytest.mark.parametrize("trials", range(1, 19))
def test_for_bohb_any_number_of_trials_comes_to_an_end(trials: int) -> None:
    study = FakeStudy(bohb(), slots=2)
    study.run(supply=trials)

    assert study.statuses() == ["TERMINATED"] * trials

"""The machine of a study: what follows from what happened, step by step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.core.run.budget import Budget
from holdfast.core.run.outcomes import Evicted
from holdfast.core.study.events import (
    TrialExited,
    TrialNotStarted,
    TrialReported,
    TrialStarted,
)
from holdfast.core.study.judges import Judges
from holdfast.core.study.machine import Study
from holdfast.core.study.rules import Rules
from holdfast.core.study.trial import Intent, Status
from tests.unit.core.study.studies import (
    DONE,
    KILLED,
    Judge,
    leave,
    report,
    save,
    start,
    study_of,
)


def test_a_step_that_is_done_again_is_not_judged_again() -> None:
    judge = Judge()
    study = study_of(judge, budget=Budget(failures=None))
    start(study)
    for step in (1, 2, 3):
        report(study, step)
    save(study, 1)
    leave(study, KILLED)
    start(study, after=1)
    for step in (2, 3, 4):
        report(study, step)

    judged = [what[2] for what in judge.heard if what[0] == "judged"]
    assert judged == [1, 2, 3, 4]


@pytest.mark.parametrize("verdict", ["STOP", "PAUSE"])
def test_what_was_decided_holds_when_the_step_is_done_again(verdict: str) -> None:
    study = study_of(Judge({2: verdict}), budget=Budget(failures=None), saves_at_end=True)
    trial = start(study)
    report(study, 1)
    report(study, 2)
    assert trial.reply().verdict == verdict
    leave(study, KILLED)  # before it could save itself
    assert trial.status is Status.PENDING
    start(study)
    report(study, 1)
    assert trial.reply().verdict == "CONTINUE"
    report(study, 2)

    assert trial.reply().verdict == verdict


def test_a_trial_that_was_stopped_and_misses_nothing_ends_with_its_process() -> None:
    study = study_of(Judge({2: "STOP"}))
    trial = start(study)
    report(study, 1)
    report(study, 2)
    leave(study, KILLED)

    assert trial.status is Status.TERMINATED


def test_a_trial_that_was_paused_and_is_saved_waits_when_its_process_dies() -> None:
    study = study_of(Judge({2: "PAUSE"}))
    trial = start(study)
    report(study, 1)
    report(study, 2)
    save(study, 2)
    leave(study, KILLED)

    assert trial.status is Status.PAUSED
    assert sum(trial.run.losses.values()) == 0


def test_losses_are_charged_and_the_last_is_an_error() -> None:
    judge = Judge()
    study = study_of(judge, budget=Budget(failures=1))
    trial = start(study)
    leave(study, KILLED)
    statuses = [trial.status]
    start(study)
    leave(study, KILLED)

    assert [*statuses, trial.status] == [Status.PENDING, Status.ERROR]
    assert judge.heard == [("error", "t0"), ("search complete", "t0", True)]


def test_a_process_that_we_took_away_is_nobodys_fault() -> None:
    study = study_of(Judge(), budget=Budget(failures=0))
    trial = start(study)
    leave(study, Evicted(0, "node"))

    assert trial.status is Status.PENDING


def test_the_first_failure_ends_all_if_that_is_wanted() -> None:
    study = study_of(Judge(), trials=3, budget=Budget(failures=0), fail_fast=True)
    start(study, "t0")
    start(study, "t1")
    leave(study, KILLED, "t0")

    assert study.trials["t1"].intent is Intent.END
    assert study.finished["t2"].status is Status.TERMINATED
    assert study.next_to_start() is None


def test_a_judge_that_raises_ends_nothing() -> None:
    judge = Judge()

    def fail(*_: Any) -> None:
        raise RuntimeError("a bug of the user's")

    judge.on_judging = fail
    study = study_of(judge)
    trial = start(study)
    report(study, 1)

    assert trial.reply().verdict == "CONTINUE"


def test_news_of_an_attempt_that_is_over_changes_nothing() -> None:
    study = study_of(Judge(), budget=Budget(failures=None))
    trial = start(study)
    report(study, 1)
    leave(study, KILLED)
    start(study)
    study.take(TrialReported("t0", 1, 9, {"training_iteration": 9}))
    study.take(TrialExited("t0", 1, "done", DONE))

    assert (trial.step, trial.status) == (0, Status.RUNNING)


def test_its_state_is_plain_and_comes_back() -> None:
    study = study_of(Judge({2: "PAUSE"}), trials=3)
    start(study)
    report(study, 1, loss=float("nan"))
    save(study, 1)
    leave(study, KILLED)
    state = json.loads(json.dumps(study.get_state()))
    judge = Judge()
    again = Study(Judges(judge, judge, judge), Rules())
    again.set_state(state)

    assert json.dumps(again.get_state()) == json.dumps(state)


def fail_to_start(study: Study, trial_id: str = "t0") -> None:
    attempt = study.trials[trial_id].run.attempts
    study.take(TrialNotStarted(trial_id, attempt, f"no memory at {attempt}"))


def start_in_vain(study: Study, times: int, trial_id: str = "t0") -> None:
    for _ in range(times):
        trial = study.trials[trial_id]
        attempt = max(1, trial.run.attempts)
        study.take(TrialStarted(trial_id, attempt, ["node"], 0, time=1.0))
        fail_to_start(study, trial_id)


def test_a_study_of_which_nothing_ever_ran_gives_trials_up_that_fail_alike_to_start() -> None:
    study = study_of(Judge(), trials=2, budget=Budget(failures=0))
    trials = list(study.trials.values())
    for _ in range(5):
        start_in_vain(study, 1, "t0")
        start_in_vain(study, 1, "t1")
    before = [one.status for one in trials]
    start_in_vain(study, 1, "t0")
    start_in_vain(study, 1, "t1")

    assert before == [Status.PENDING, Status.PENDING]
    assert [one.status for one in trials] == [Status.ERROR, Status.ERROR]


@pytest.mark.parametrize("other", ["runs", "ended", "was lost"])
def test_where_others_run_a_trial_is_started_for_as_long_as_it_takes(other: str) -> None:
    study = study_of(Judge(), trials=2, budget=Budget(failures=5))
    trial = study.trials["t1"]
    start(study, "t0")
    if other == "ended":
        leave(study, DONE)
    elif other == "was lost":
        leave(study, KILLED)
    start_in_vain(study, 20, "t1")

    assert trial.status is Status.PENDING


def test_a_checkpoint_takes_back_that_a_trial_is_to_save_itself() -> None:
    study = study_of(Judge(), trials=2)
    saving, pausing = start(study, "t0"), start(study, "t1")
    for trial in (saving, pausing):
        report(study, 1, trial.trial_id)
    study.save_trial(saving)
    study.pause_trial(pausing)
    assert saving.reply().save and pausing.reply().save and pausing.needs_process

    for trial in (saving, pausing):
        save(study, 1, trial.trial_id)

    assert not saving.reply().save and saving.needs_process
    assert not pausing.reply().save and not pausing.needs_process


def test_a_trial_that_waits_after_a_loss_waits_no_more_once_it_starts_or_ends() -> None:
    study = study_of(Judge(), trials=2, budget=Budget(failures=5))
    for trial_id in ("t0", "t1"):
        start(study, trial_id)
        leave(study, KILLED, trial_id)
    study.delays = {"t0": 1.0, "t1": 1.0}
    assert study.next_to_start() is None

    start(study, "t0")
    study.stop_trial(study.trials["t1"])

    assert study.delays == {}


def test_a_pause_that_was_carried_out_says_nothing_about_a_later_death() -> None:
    study = study_of(Judge({1: "PAUSE"}), budget=Budget(failures=5))
    trial = start(study)
    report(study, 1)
    save(study, 1)
    leave(study, DONE, how="paused")
    paused_as = str(trial.status)

    start(study, after=1)
    leave(study, KILLED)

    assert (paused_as, str(trial.status)) == ("PAUSED", "PENDING")
    assert sum(trial.run.losses.values()) == 1

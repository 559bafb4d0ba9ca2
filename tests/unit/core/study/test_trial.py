"""What a trial remembers, and what the study wants of it."""

from __future__ import annotations

import itertools

import pytest

from holdfast.core.study.trial import Decision, Intent, Reply, Status, Trial, Verdict


def test_a_step_that_is_done_again_counts_in_no_average_twice() -> None:
    trial = Trial("t")
    for step, loss in ((1, 4.0), (2, 2.0)):
        trial.observe(step, {"loss": loss})
        trial.decision = Decision(step)
    trial.observe(2, {"loss": 8.0})  # after a loss
    assert trial.statistics["loss"].summary()["last"] == 8.0

    trial.observe(3, {"loss": 3.0})

    summary = trial.statistics["loss"].summary()
    assert summary["avg"] == summary["last-5-avg"] == 3.0
    assert (summary["max"], summary["min"], summary["last"]) == (4.0, 2.0, 3.0)


@pytest.mark.parametrize("status", Status)
def test_it_is_finished_when_nothing_more_will_happen(status: Status) -> None:
    assert Trial("t", status=status).is_finished() == (status in ("TERMINATED", "ERROR"))


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("intent", Intent)
def test_an_intent_outweighs_the_verdict_unless_the_trial_is_to_stop(
    intent: Intent, verdict: Verdict
) -> None:
    trial = Trial("t", step=3, decision=Decision(3, verdict), intent=intent)

    reply = trial.reply()

    if verdict is Verdict.STOP or intent is Intent.END:
        assert reply == Reply(Verdict.STOP)
    elif intent in (Intent.PAUSE, Intent.HALT):
        assert reply == Reply(Verdict.PAUSE, save=intent is Intent.PAUSE)
    else:
        assert reply.verdict is verdict
        assert reply.save == (verdict is Verdict.PAUSE or intent is Intent.SAVE)


def test_what_was_decided_about_a_step_waits_until_the_step_is_done_again() -> None:
    trial = Trial("t", step=2, decision=Decision(3, Verdict.STOP), intent=Intent.SAVE)

    assert trial.reply() == Reply(Verdict.CONTINUE)


@pytest.mark.parametrize("later", Intent)
def test_a_trial_that_is_to_end_ends_whatever_is_wanted_later(later: Intent) -> None:
    trial = Trial("t", intent=Intent.END)

    trial.want(later)
    trial.want_save()
    trial.has_saved()
    trial.has_no_process()

    assert trial.intent is Intent.END


@pytest.mark.parametrize(
    ("before", "wanted", "saved", "gone"),
    [
        (Intent.GO_ON, Intent.SAVE, Intent.GO_ON, Intent.GO_ON),
        (Intent.SAVE, Intent.SAVE, Intent.GO_ON, Intent.SAVE),
        (Intent.PAUSE, Intent.PAUSE, Intent.HALT, Intent.GO_ON),
        (Intent.HALT, Intent.PAUSE, Intent.HALT, Intent.GO_ON),
    ],
)
def test_saves_and_pauses_are_taken_back_once_they_are_done(
    before: Intent, wanted: Intent, saved: Intent, gone: Intent
) -> None:
    def after(change: str) -> Intent:
        trial = Trial("t", intent=before)
        getattr(trial, change)()
        return trial.intent

    assert after("want_save") is wanted
    assert after("has_saved") is saved
    assert after("has_no_process") is gone


@pytest.mark.parametrize("intent", Intent)
def test_only_a_trial_that_runs_and_may_be_asked_first_needs_its_process(intent: Intent) -> None:
    asked_first = intent in (Intent.GO_ON, Intent.SAVE, Intent.PAUSE)

    assert Trial("t", status=Status.RUNNING, intent=intent).needs_process == asked_first
    assert not Trial("t", status=Status.PAUSED, intent=intent).needs_process


@pytest.mark.parametrize("intent", Intent)
@pytest.mark.parametrize("verdict", Verdict)
def test_intent_and_decision_come_back_from_data(intent: Intent, verdict: Verdict) -> None:
    data = Trial("t", intent=intent, decision=Decision(7, verdict)).to_data()

    trial = Trial.from_data(data)

    assert (trial.intent, trial.decision) == (intent, Decision(7, verdict))


@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=3)))
def test_every_combination_of_flags_that_records_hold_is_an_intent(
    flags: tuple[bool, bool, bool],
) -> None:
    doomed, halted, save_wanted = flags
    record = Trial("t", step=1, decision=Decision(1)).to_data()
    record |= {"doomed": doomed, "halted": halted, "save_wanted": save_wanted}

    trial = Trial.from_data(record)

    verdict = Verdict.STOP if doomed else Verdict.PAUSE if halted else Verdict.CONTINUE
    assert trial.reply() == Reply(verdict, save=save_wanted and not doomed)

"""A lost trial, told to people: gathers what the failure card needs to know."""

from __future__ import annotations

import os

from holdfast.control.failure_cards import next_of
from holdfast.core.failure.card import GaveUp, Loss, card
from holdfast.core.outcomes import WorkerExit
from holdfast.core.study.trial import Trial

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def trial_card(
    trial: Trial,
    attempt: int,
    ended: WorkerExit,
    *,
    log: str,
    reached: int,
    waits_s: float,
    again: str,
) -> str:
    """Return the screen that tells of a lost trial, which has become what it is by that.

    `again` is the call that tries it again, if it is given up.
    """
    return card(
        Loss(
            run=str(trial),
            attempt=attempt,
            exits=(ended,),
            ranks=1,
            then=next_of(trial.run, trial.run.budget, (ended,), waits_s, again),
            log_of=lambda _: log,
            saved_step=trial.saved_step() or None,
            reached_step=reached or None,
            repeats=trial.run.repeats,
            ours=_OURS,
        )
    )


def refusal_card(trial: Trial, reason: str, again: str) -> str:
    """Return the screen that tells of a trial that can never start."""
    return card(
        Loss(
            run=str(trial),
            attempt=1,
            exits=(),
            ranks=1,
            then=GaveUp("it cannot start; the other trials go on", again),
            log_of=str,  # there is none
            not_started=reason,
        )
    )

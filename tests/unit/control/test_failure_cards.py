"""What the cards of a lost trial and of one that cannot start say."""

from __future__ import annotations

from holdfast.control.failure_cards import refusal_card, trial_card
from holdfast.core.failure.stacks import OURS
from holdfast.core.run.budget import Budget
from holdfast.core.run.machine import DriverStarted, GroupEnded, Run, advance
from holdfast.core.run.outcomes import Raised
from holdfast.core.study.trial import Trial

TRACE = f"""\
Traceback (most recent call last):
  File "{OURS}/worker/entry.py", line 9, in call
  File "/code/train.py", line 42, in train
ValueError: loss is nan
"""
RAISED = Raised(0, "n", "ValueError: loss is nan", TRACE)


def lost(budget: Budget) -> Trial:
    trial = Trial("00000")
    trial.run = advance(Run(), DriverStarted(budget)).run
    trial.run = advance(trial.run, GroupEnded(1, (RAISED,))).run
    return trial


def shown(trial: Trial) -> str:
    return trial_card(
        trial, 1, RAISED, log="/logs/1.log", reached=3, waits_s=0.0, again="tuner.fit()"
    )


def test_the_card_of_a_trial_shows_the_users_frames_and_that_it_is_tried_again() -> None:
    card = shown(lost(Budget(failures=2)))

    assert "… 1 frame of holdfast …" in card and "worker/entry.py" not in card
    assert "attempt 2 begins now from the start; 1 of 2 retries left" in card


def test_the_card_of_a_trial_that_failed_for_good_says_what_tries_it_again() -> None:
    card = shown(lost(Budget(failures=0)))

    assert "no failure is absorbed: FailureConfig(max_failures=0)" in card
    assert card.endswith("resume   tuner.fit()")


def test_the_card_of_a_trial_that_cannot_start_says_why() -> None:
    card = refusal_card(Trial("00000"), "its config cannot be pickled", "tuner.fit()")

    assert "why      its config cannot be pickled" in card
    assert "the other trials go on" in card

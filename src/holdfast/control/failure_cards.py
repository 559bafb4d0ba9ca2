"""Makes the failure cards of runs and trials: gathers what a card needs to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.failure.card import Exits, GaveUp, Loss, Next, Retry, card
from holdfast.core.run.budget import Budget, blame, failures_in
from holdfast.core.run.machine import Active, Ending, Over, Run
from holdfast.core.run.outcomes import Blame, WorkerExit
from holdfast.core.study.trial import Trial

if TYPE_CHECKING:  # studies use this module without importing runs
    from holdfast.control.record.open_run import OpenTrainingRun
    from holdfast.control.run.attempt import Attempt
    from holdfast.control.run.plan import Plan

AGAIN = "give the same command again"


def loss_card(run: OpenTrainingRun, plan: Plan, attempt: Attempt, waits_s: float) -> str:
    """Return the card of a lost group; the run's history must have the loss already."""
    newest, after = run.record.newest(), run.history.run
    group, stopped = attempt.group, attempt.stopped
    return card(
        Loss(
            run=run.identity.name,
            attempt=attempt.number,
            exits=attempt.exits,
            ranks=len(group.places),
            then=_next_of(after, plan.budget, attempt.exits, waits_s),
            log_of=lambda rank: plan.log_path(attempt.number, rank),
            saved_step=None if newest is None else newest.step,
            reached_step=group.step_reached or None,
            repeats=after.repeats,
            first_stopped=None if stopped is None else stopped.first,
            stacks_file=None if stopped is None else stopped.stacks_file,
        )
    )


def start_card(name: str, plan: Plan, attempt: int, reason: str, after: Run, waits_s: float) -> str:
    """Return the card of a group that never came up."""
    return card(
        Loss(
            run=name,
            attempt=attempt,
            exits=(),
            ranks=plan.workers,
            then=_next_of(after, plan.budget, (), waits_s),
            log_of=lambda rank: plan.log_path(attempt, rank),
            repeats=after.repeats,
            not_started=reason,
        )
    )


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
    """Return the card of a lost trial; `trial` must have the loss already.

    `again` is the call that tries it again, if it is given up.
    """
    return card(
        Loss(
            run=str(trial),
            attempt=attempt,
            exits=(ended,),
            ranks=1,
            then=_next_of(trial.run, trial.run.budget, (ended,), waits_s, again),
            log_of=lambda _: log,
            saved_step=trial.saved_step() or None,
            reached_step=reached or None,
            repeats=trial.run.repeats,
        )
    )


def refusal_card(trial: Trial, reason: str, again: str) -> str:
    """Return the card of a trial that can never start."""
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


def _next_of(
    after: Run,
    budget: Budget,
    exits: tuple[WorkerExit, ...],
    waits_s: float,
    again: str = AGAIN,
) -> Next:
    """Return what happens after a loss; `after` is the run with the loss in it."""
    if isinstance(after.phase, Over):
        if after.phase.ending is Ending.FAILED:
            return GaveUp(_used_up(budget, exits), again)
        return Exits("the run was stopped", again)
    attempt = after.phase.attempt if isinstance(after.phase, Active) else after.attempts
    limit = budget.failures
    if not exits or blame(exits) is Blame.PREEMPTION:
        return Retry(attempt, waits_s, None, None)
    left = None if limit is None else limit - failures_in(after.losses)
    return Retry(attempt, waits_s, left, limit)


def _used_up(budget: Budget, exits: tuple[WorkerExit, ...]) -> str:
    if not exits and budget.starts is None:
        return "nothing of it has ever run, and it failed to start for the same reason each time"
    if not exits:
        return f"controller_failure_limit={budget.starts}"
    if blame(exits) is Blame.PREEMPTION:
        return f"max_preemption_failures={budget.preemptions}"
    if budget.failures == 0:
        return "no failure is absorbed: FailureConfig(max_failures=0)"
    return f"FailureConfig(max_failures={budget.failures}) is used up"

"""A lost group, told to people: gathers what the failure card needs to know."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.core.failure.card import Exits, GaveUp, Loss, Next, Retry, card
from holdfast.core.outcomes import WorkerExit
from holdfast.core.run.budget import Blame, Budget, blame, failures_in
from holdfast.core.run.machine import Active, Ending, Over, Run

if TYPE_CHECKING:  # a study has use for this module, and none for groups
    from holdfast.control.run.group import Group
    from holdfast.control.run.plan import Plan
    from holdfast.control.run.watchdog import Stopped

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
AGAIN = "give the same command again"


def loss_card(
    name: str,
    plan: Plan,
    group: Group,
    exits: tuple[WorkerExit, ...],
    after: Run,
    stopped: Stopped | None,
    waits_s: float,
) -> str:
    """Return the screen that tells of a lost group; `after` is what the run has become by it."""
    newest = group.newest
    return card(
        Loss(
            run=name,
            attempt=group.attempt,
            exits=exits,
            ranks=len(group.places),
            then=next_of(after, plan.budget, exits, waits_s),
            log_of=lambda rank: plan.log_path(group.attempt, rank),
            saved_step=None if newest is None else newest.step,
            reached_step=group.step_reached or None,
            repeats=after.repeats,
            first_stopped=None if stopped is None else stopped.first,
            stacks_file=None if stopped is None else stopped.stacks_file,
            ours=_OURS,
        )
    )


def start_card(name: str, plan: Plan, attempt: int, reason: str, after: Run, waits_s: float) -> str:
    """Return the screen that tells of a group that never came up."""
    return card(
        Loss(
            run=name,
            attempt=attempt,
            exits=(),
            ranks=plan.workers,
            then=next_of(after, plan.budget, (), waits_s),
            log_of=lambda rank: plan.log_path(attempt, rank),
            repeats=after.repeats,
            not_started=reason,
        )
    )


def next_of(
    after: Run,
    budget: Budget,
    exits: tuple[WorkerExit, ...],
    waits_s: float,
    again: str = AGAIN,
) -> Next:
    """Return what happens after a loss; `after` is what the run has become by it."""
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

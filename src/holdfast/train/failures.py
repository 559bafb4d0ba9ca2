"""The error that a failed run is raised as: who failed, how, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.control.run.plan import Outcome
from holdfast.core.failure.card import culprit, headline, to_fix
from holdfast.core.outcomes import Evicted, Raised, WorkerExit
from holdfast.core.run.budget import Blame, blame
from holdfast.core.run.machine import Ending
from holdfast.train.callbacks import exceptions_of
from holdfast.train.errors import (
    ControllerError,
    Interrupted,
    PreemptionError,
    TrainingFailedError,
    WorkerGroupError,
)
from holdfast.train.reported import PreemptionInfo
from holdfast.train.result import Result


def failure_of(outcome: Outcome, *, hint: str | None = None) -> TrainingFailedError:
    """Return the error that a failed run is raised as; its cause is what the user's code raised."""
    exits = outcome.over.exits
    if not exits:
        refused = ControllerError(
            f"the workers could not be started in {outcome.attempts} attempts", hint=hint
        )
        refused.card = outcome.card
        return refused
    said = f"{headline(exits)} (attempt {outcome.attempts}, no retries left)"
    error: TrainingFailedError
    if blame(exits) is Blame.PREEMPTION:
        error = PreemptionError(said, _taken_away(exits), hint=hint)
    else:
        failures = exceptions_of(exits, outcome.errors)
        error = WorkerGroupError(said, failures, hint=hint)
        first = culprit(exits)
        if isinstance(first, Raised):
            error.__cause__ = failures[first.rank]
    error.card = outcome.card
    return error


def _taken_away(exits: Sequence[WorkerExit]) -> PreemptionInfo:
    """Return which machines a group was lost to; nobody knows any more when that was to be."""
    ranks: dict[str, list[int]] = {}
    for one in exits:
        if isinstance(one, Evicted) and one.preempted:
            ranks.setdefault(one.node, []).append(one.rank)
    return PreemptionInfo(None, ranks)


def interruption_of(ending: Ending, line: str, result: Result) -> BaseException:
    """Return what a run that was asked to end is raised as."""
    if ending is Ending.STOPPED:
        return KeyboardInterrupt()
    interrupted = Interrupted(line)
    interrupted.result = result
    return interrupted


def how_to_carry_on(checkpoint: str | None, exits: Sequence[WorkerExit]) -> str:
    """Return what to try after a failure: the same command, but if it is a bug, not at once."""
    does = f"carries on from {checkpoint}" if checkpoint else "begins again, without a checkpoint"
    if (fix := to_fix(exits)) is not None:
        return f"{fix}; the same command then {does}"
    return f"the same command again, which {does}"

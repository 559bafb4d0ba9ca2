"""Errors of training runs, with Ray's names, and their construction from a failed run.

RayTrainError
└── TrainingFailedError    a run failed; `result` is what it achieved until then
    ├── WorkerGroupError   the workers failed more often than FailureConfig allows
    ├── ControllerError    the workers could not be started
    └── PreemptionError    the machines were taken away more often than allowed

Interrupted                the driver was asked to stop; the same command carries on
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.core.failure.card import culprit, headline, to_fix
from holdfast.core.quantities import counted
from holdfast.core.run.budget import blame
from holdfast.core.run.machine import Ending
from holdfast.core.run.outcomes import Blame, Died, Evicted, Raised, WorkerExit
from holdfast.errors import EngineError, HoldfastError
from holdfast.exceptions import (
    ActorDiedError,
    NodeDiedError,
    OutOfMemoryError,
    RayTaskError,
    WorkerCrashedError,
)
from holdfast.train.reported import PreemptionInfo
from holdfast.worker.job import unpack_value

if TYPE_CHECKING:
    from holdfast.control.run.plan import Outcome
    from holdfast.train.result import Result


class RayTrainError(HoldfastError):
    """Base of the errors that a training run fails with."""


class TrainingFailedError(RayTrainError, RuntimeError):
    """A run failed.

    Attributes:
        result: What the run achieved until then, above all its checkpoints.
        card: One screen that shows what happened; empty if the workers never started.
    """

    code = "HF200"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.result: Result | None = None
        self.card = ""

    def __str__(self) -> str:
        return f"{super().__str__()}\n\n{self.card}" if self.card else super().__str__()


class WorkerGroupError(TrainingFailedError, RayTaskError):
    """The workers failed more often than `FailureConfig(max_failures=…)` allows.

    Attributes:
        worker_failures: What each rank that failed raised, or how its process ended.
    """

    code = "HF201"

    def __init__(
        self,
        message: str,
        worker_failures: Mapping[int, BaseException],
        *,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.worker_failures = dict(worker_failures)


class ControllerError(TrainingFailedError):
    """The workers could not be started.

    Attributes:
        controller_failure: The reason.
    """

    code = "HF202"

    def __init__(
        self, message: str, controller_failure: Exception | None = None, *, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.controller_failure = (
            EngineError(message) if controller_failure is None else controller_failure
        )


class PreemptionError(TrainingFailedError):
    """The machines were taken away more often than the run allows.

    Attributes:
        preemption_info: The machines that the last attempt lost, and the ranks on them.
    """

    code = "HF203"

    def __init__(
        self,
        message: str,
        preemption_info: PreemptionInfo | None = None,
        *,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.preemption_info = preemption_info


RESUMABLE = 75  # the exit code that asks a scheduler to run the same command again


class Interrupted(SystemExit):
    """This machine is about to be taken away; what could be saved is saved.

    Uncaught, it ends the process with exit code 75, which means that the same command, run again,
    carries on. It is no `Exception`, so that code which retries on errors does not continue on a
    machine that is about to vanish.

    Attributes:
        result: What the run achieved until then.
    """

    def __init__(self, message: str) -> None:
        super().__init__(RESUMABLE)
        self.message = message
        self.result: Result | None = None

    def __str__(self) -> str:
        return self.message


class WorkerDiedError(ActorDiedError, WorkerCrashedError):
    """A worker's process died without an exception, hung, or was lost with its node."""

    code = "HF210"


class WorkerOutOfMemory(WorkerDiedError, OutOfMemoryError):
    """The kernel killed a worker's process for the memory it used."""


class WorkerLostWithNode(WorkerDiedError, NodeDiedError):
    """A worker's process was lost with everything else on its node."""


# ---------------------------------------------------------------------- from a failed run


def failure_of(outcome: Outcome, *, hint: str | None = None) -> TrainingFailedError:
    """Return the error to raise for a failed run; its cause is what the user's code raised."""
    exits = outcome.over.exits
    if not exits:
        refused = ControllerError(
            f"the workers could not be started in {counted(outcome.attempts, 'attempt')}", hint=hint
        )
        refused.card = outcome.card
        return refused
    message = f"{headline(exits)} (attempt {outcome.attempts}, no retries left)"
    error: TrainingFailedError
    if blame(exits) is Blame.PREEMPTION:
        error = PreemptionError(message, _preempted_machines(exits), hint=hint)
    else:
        failures = exceptions_of(exits, outcome.errors)
        error = WorkerGroupError(message, failures, hint=hint)
        first = culprit(exits)
        if isinstance(first, Raised):
            error.__cause__ = failures[first.rank]
    error.card = outcome.card
    return error


def _preempted_machines(exits: Sequence[WorkerExit]) -> PreemptionInfo:
    """Return the machines that were taken away; their deadline is not recorded."""
    ranks: dict[str, list[int]] = {}
    for ended in exits:
        if isinstance(ended, Evicted) and ended.preempted:
            ranks.setdefault(ended.node, []).append(ended.rank)
    return PreemptionInfo(None, ranks)


def interruption_of(ending: Ending, line: str, result: Result) -> BaseException:
    """Return the exception to raise for a run that was asked to stop."""
    if ending is Ending.STOPPED:
        return KeyboardInterrupt()
    interrupted = Interrupted(line)
    interrupted.result = result
    return interrupted


def resume_hint(checkpoint: str | None, exits: Sequence[WorkerExit]) -> str:
    """Return what to try after a failure: the same command, after fixing the bug if it is one."""
    effect = f"carries on from {checkpoint}" if checkpoint else "begins again, without a checkpoint"
    if (fix := to_fix(exits)) is not None:
        return f"{fix}; the same command then {effect}"
    return f"the same command again, which {effect}"


def exceptions_of(
    exits: Sequence[WorkerExit], errors: Mapping[int, bytes | None]
) -> dict[int, BaseException]:
    """Return, for each rank that failed, what it raised or how its process ended."""
    failed = [ended for ended in exits if ended.has_failed]
    return {ended.rank: _exception_of(ended, errors.get(ended.rank)) for ended in failed}


def _exception_of(ended: WorkerExit, pickled: bytes | None) -> BaseException:
    """Return what a worker raised, or a description of its end if that cannot be unpickled."""
    if pickled is not None:
        try:
            raised = unpack_value(pickled)
        except Exception:  # noqa: BLE001  # unpickling runs the error's own code
            raised = None
        if isinstance(raised, BaseException):
            return raised
    kind = WorkerDiedError
    if isinstance(ended, Died) and ended.out_of_memory:
        kind = WorkerOutOfMemory
    elif isinstance(ended, Died) and ended.node_lost:
        kind = WorkerLostWithNode
    return kind(ended.describe())

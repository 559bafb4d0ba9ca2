"""How a training run fails, by the names its users know.

RayTrainError
└── TrainingFailedError    a run did not succeed; `result` is what there is of it
    ├── WorkerGroupError   the workers failed more often than FailureConfig allows
    ├── ControllerError    the workers could not be started
    └── PreemptionError    the machines were taken away more often than allowed

Interrupted                the driver was asked to go; the same command carries on
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.errors import EngineError, HoldfastError
from holdfast.exceptions import (
    ActorDiedError,
    NodeDiedError,
    OutOfMemoryError,
    RayTaskError,
    WorkerCrashedError,
)

if TYPE_CHECKING:
    from holdfast.train.reported import PreemptionInfo
    from holdfast.train.result import Result


class RayTrainError(HoldfastError):
    """What scripts written for Ray Train may catch: whatever a run fails with."""


class TrainingFailedError(RayTrainError, RuntimeError):
    """A run did not succeed.

    Attributes:
        result: What there is of it, its checkpoints above all.
        card: One screen that tells what happened, empty if the workers never started.
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
        controller_failure: What stood in the way.
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
        preemption_info: Which machines the last attempt was lost to, and the ranks on them.
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


RESUMABLE = 75  # the exit code that tells a scheduler to give the same command again


class Interrupted(SystemExit):
    """This process was told that its machine will be taken away; what could be saved is saved.

    Not caught, it ends the process with the exit code 75, which tells whoever started it that the
    same command, given again, carries on. It is no `Exception`, so that code which retries on
    errors does not go on with a machine that is about to vanish.

    Attributes:
        result: What there is of the run.
    """

    def __init__(self, message: str) -> None:
        super().__init__(RESUMABLE)
        self.message = message
        self.result: Result | None = None

    def __str__(self) -> str:
        return self.message


class WorkerDiedError(ActorDiedError, WorkerCrashedError):
    """A worker's process ended without a word, hung, or was lost with its node."""

    code = "HF210"


class WorkerOutOfMemory(WorkerDiedError, OutOfMemoryError):
    """The kernel ended a worker's process for the memory it used."""


class WorkerLostWithNode(WorkerDiedError, NodeDiedError):
    """A worker's process was lost with everything else on its node."""

"""How a training run fails, by the names its users know.

TrainingFailedError        a run did not succeed; `result` is what there is of it
├── WorkerGroupError       the workers failed more often than FailureConfig allows
├── ControllerError        the workers could not be started
└── PreemptionError        the machines were taken away more often than allowed
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.train.result import Result


class TrainingFailedError(HoldfastError, RuntimeError):
    """A run did not succeed; `result` is what there is of it, its checkpoints above all."""

    code = "HF200"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.result: Result | None = None


class WorkerGroupError(TrainingFailedError):
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
    """The workers could not be started."""

    code = "HF202"


class PreemptionError(TrainingFailedError):
    """The machines were taken away more often than the run allows."""

    code = "HF203"


class WorkerDiedError(HoldfastError):
    """A worker's process ended without a word, hung, or was lost with its node."""

    code = "HF210"

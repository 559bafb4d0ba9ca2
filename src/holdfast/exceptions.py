"""What scripts written for Ray catch, by the names of `ray.exceptions`.

RayError                     every error of Holdfast's: the same class as `HoldfastError`
├── RayTaskError             code of the user's raised in a worker: `train.WorkerGroupError` is one
├── RayActorError            a process of a run is gone
│   ├── ActorDiedError       `train.WorkerDiedError` is one
│   ├── ActorUnavailableError
│   └── ActorUnschedulableError
├── WorkerCrashedError       a process ended without a word: `train.WorkerDiedError` is one
├── OutOfMemoryError         the kernel ended a process for the memory it used
├── NodeDiedError            a process was lost with its machine
├── ObjectLostError          what `holdfast.get` raises if an object is gone
├── ObjectStoreFullError     there is no room left for bytes, as is OutOfDiskError: `StoreFull`
├── RuntimeEnvSetupError     workers could not be started: `EngineError`
└── GetTimeoutError, TaskCancelledError, TaskUnschedulableError, RaySystemError, …

Those of the last line, and others that stand for no more than their name, are never raised: what
they tell of does not happen on one machine. They are here so that scripts find them.
"""

from __future__ import annotations

from holdfast.errors import EngineError, HoldfastError, StoreFull

__all__ = [
    "ActorDiedError",
    "ActorUnavailableError",
    "ActorUnschedulableError",
    "GetTimeoutError",
    "LocalRayletDiedError",
    "NodeDiedError",
    "ObjectFetchTimedOutError",
    "ObjectFreedError",
    "ObjectLostError",
    "ObjectReconstructionFailedError",
    "ObjectStoreFullError",
    "OutOfDiskError",
    "OutOfMemoryError",
    "OwnerDiedError",
    "PendingCallsLimitExceeded",
    "RayActorError",
    "RayError",
    "RaySystemError",
    "RayTaskError",
    "ReferenceCountingAssertionError",
    "RuntimeEnvSetupError",
    "TaskCancelledError",
    "TaskUnschedulableError",
    "WorkerCrashedError",
]

RayError = HoldfastError
ObjectStoreFullError = OutOfDiskError = StoreFull
RuntimeEnvSetupError = EngineError


class RayTaskError(HoldfastError):
    """Code of the user's has raised in a worker."""

    @property
    def cause(self) -> BaseException | None:
        """What it raised, None if that could not be brought here."""
        return self.__cause__

    def as_instanceof_cause(self) -> BaseException:
        """Return what the code raised, or this error if that could not be brought here."""
        return self if self.__cause__ is None else self.__cause__


class RayActorError(HoldfastError):
    """A process of a run is gone."""


class ActorDiedError(RayActorError):
    """A process of a run has ended before its time."""


class ActorUnavailableError(RayActorError):
    """Never raised: a process that does not answer is ended."""


class ActorUnschedulableError(RayActorError):
    """Never raised: what can never fit is a `ConfigError`."""


class WorkerCrashedError(HoldfastError):
    """A process ended without a word."""


class OutOfMemoryError(HoldfastError):
    """The kernel ended a process for the memory it used."""


class NodeDiedError(HoldfastError):
    """A process was lost with its machine."""


class LocalRayletDiedError(HoldfastError):
    """Never raised: there is no such process."""


class ObjectLostError(HoldfastError):
    """The object of a reference is not to be had."""


class ObjectFetchTimedOutError(ObjectLostError):
    """Never raised: objects are on this machine."""


class ObjectFreedError(ObjectLostError):
    """Never raised: an object lives as long as its references."""


class ObjectReconstructionFailedError(ObjectLostError):
    """Never raised: nothing is made a second time."""


class OwnerDiedError(ObjectLostError):
    """Never raised: `ObjectLostError` tells of it."""


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """Never raised."""


class GetTimeoutError(HoldfastError, TimeoutError):
    """Never raised: an object is there at once, or not at all."""


class TaskCancelledError(HoldfastError):
    """Never raised: a run that is stopped raises `KeyboardInterrupt` in its driver."""


class TaskUnschedulableError(HoldfastError):
    """Never raised: what can never fit is a `ConfigError`."""


class RaySystemError(HoldfastError):
    """Never raised: there is no such system."""


class PendingCallsLimitExceeded(HoldfastError):  # as in Ray
    """Never raised: there are no such calls."""

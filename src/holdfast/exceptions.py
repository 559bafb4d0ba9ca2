"""The names of `ray.exceptions`, for scripts written for Ray.

RayError                     all errors: the same class as `HoldfastError`
├── RayTaskError             user code raised in a worker: `train.WorkerGroupError` is one
├── RayActorError            a process of a run is gone
│   ├── ActorDiedError       `train.WorkerDiedError` is one
│   ├── ActorUnavailableError
│   └── ActorUnschedulableError
├── WorkerCrashedError       a process died without an exception: `train.WorkerDiedError` is one
├── OutOfMemoryError         the kernel killed a process for the memory it used
├── NodeDiedError            a process was lost with its machine
├── ObjectLostError          what `holdfast.get` raises if an object is gone
├── ObjectStoreFullError     the same class as OutOfDiskError and `StoreFull`
├── RuntimeEnvSetupError     workers could not be started: the same class as `EngineError`
└── GetTimeoutError, TaskCancelledError, TaskUnschedulableError, RaySystemError, …

Those of the last line, and others that say so, are never raised, because the situation cannot arise
on one machine. They exist so that scripts can import them.
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
    """User code raised in a worker."""

    @property
    def cause(self) -> BaseException | None:
        """What it raised, None if that could not be unpickled here."""
        return self.__cause__

    def as_instanceof_cause(self) -> BaseException:
        """Return what the code raised, or this error if that could not be unpickled here."""
        return self if self.__cause__ is None else self.__cause__


class RayActorError(HoldfastError):
    """A process of a run is gone."""


class ActorDiedError(RayActorError):
    """A process of a run died."""


class ActorUnavailableError(RayActorError):
    """Never raised: a process that does not answer is killed."""


class ActorUnschedulableError(RayActorError):
    """Never raised: what can never fit is a `ConfigError`."""


class WorkerCrashedError(HoldfastError):
    """A process died without an exception."""


class OutOfMemoryError(HoldfastError):
    """The kernel killed a process for the memory it used."""


class NodeDiedError(HoldfastError):
    """A process was lost with its machine."""


class LocalRayletDiedError(HoldfastError):
    """Never raised: there is no such process."""


class ObjectLostError(HoldfastError):
    """The object of a reference is gone."""


class ObjectFetchTimedOutError(ObjectLostError):
    """Never raised: objects are on this machine."""


class ObjectFreedError(ObjectLostError):
    """Never raised: an object lives as long as its references."""


class ObjectReconstructionFailedError(ObjectLostError):
    """Never raised: lost objects are not reconstructed."""


class OwnerDiedError(ObjectLostError):
    """Never raised: this is an `ObjectLostError`."""


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """Never raised."""


class GetTimeoutError(HoldfastError, TimeoutError):
    """Never raised: an object is available at once, or lost."""


class TaskCancelledError(HoldfastError):
    """Never raised: a run that is stopped raises `KeyboardInterrupt` in its driver."""


class TaskUnschedulableError(HoldfastError):
    """Never raised: what can never fit is a `ConfigError`."""


class RaySystemError(HoldfastError):
    """Never raised: there is no such system."""


class PendingCallsLimitExceeded(HoldfastError):  # as in Ray
    """Never raised: there are no such calls."""

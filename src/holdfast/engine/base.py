"""What an engine is: the contract that every place where workers run must keep.

An engine knows nothing of training. It starts processes at an entry point, carries messages, and
says how each process ended. `holdfast.testing.suites.engine` is the proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from holdfast.core.outcomes import WorkerExit
from holdfast.errors import HoldfastError
from holdfast.wire import LastWords, Message


class EngineError(HoldfastError):
    """A group could not be started, and nothing of it runs."""

    code = "HF600"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One worker to be: its place, and what it finds when it begins.

    Attributes:
        node: Which node it is to run on, by the name the engine gave.
        log: The file that gets everything it prints.
        first: The message that waits for it when it begins.
    """

    rank: int
    node: str
    log: str
    first: Message
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Said:
    """A worker sent a message."""

    attempt: int
    rank: int
    message: Message


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker has ended, and whatever it had started is gone with it; nothing follows from it.

    `words` are its last, if it had any.
    """

    attempt: int
    exit: WorkerExit
    words: LastWords | None = None


EngineEvent: TypeAlias = Said | Ended


class Engine(Protocol):
    """A place where groups of workers run, one group at a time.

    Every worker of a group that was started ends in exactly one `Ended`, after all it said.
    Nothing outlives the driver that made the engine, however the driver ends.
    """

    def nodes(self) -> Sequence[str]:
        """Return the nodes that workers can be placed on."""
        ...

    def start_group(self, attempt: int, workers: Sequence[WorkerSpec]) -> None:
        """Start all workers, or raise `EngineError` with none of them running."""
        ...

    def send(self, attempt: int, rank: int, message: Message) -> None:
        """Pass a message to a worker; to one that is gone, or of another attempt, it is lost."""
        ...

    def stop_group(self, attempt: int, *, grace_s: float = 0.0) -> None:
        """Return once no worker of `attempt` can write any more; idempotent.

        Workers are asked to end (SIGTERM), and killed after `grace_s`. Their ends still come
        from `next_event`.
        """
        ...

    def next_event(self, timeout_s: float | None) -> EngineEvent | None:
        """Return what happened next, None if nothing did in time."""
        ...

    def close(self) -> None:
        """Stop everything and let go of everything; idempotent."""
        ...

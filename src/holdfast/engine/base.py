"""What an engine is: the contract that every place where workers run must keep.

An engine knows nothing of training. It starts processes at an entry point, carries messages, and
says how each process ended. `holdfast.testing.suites.engine` is the proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from holdfast.core.outcomes import WorkerExit
from holdfast.core.placement import Node
from holdfast.errors import EngineError
from holdfast.wire import LastWords, Message

__all__ = [
    "Ended",
    "Engine",
    "EngineError",
    "EngineEvent",
    "Node",
    "NodesChanged",
    "Said",
    "WorkerSpec",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One worker to be: its place, and what it finds when it begins.

    Attributes:
        node: Which node it is to run on, by the name the engine gave.
        log: The file that gets everything it prints.
        first: The message that waits for it when it begins; None if it is sent later.
    """

    rank: int
    node: str
    log: str
    first: Message | None = None
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


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """A node has joined, left, or is about to leave; `Engine.nodes` tells what there is now."""


EngineEvent: TypeAlias = Said | Ended | NodesChanged


class Engine(Protocol):
    """A place where groups of workers run, several at once; a group is known by its attempt.

    Every worker of a group that was started ends in exactly one `Ended`, after all it said.
    Nothing outlives the driver that made the engine, however the driver ends.
    """

    def nodes(self) -> Sequence[Node]:
        """Return the nodes there are; `NodesChanged` follows when that changes."""
        ...

    def can_grow(self) -> bool:
        """Whether nodes may join that are not there now; if not, waiting for room is in vain."""
        ...

    def start_group(self, attempt: int, workers: Sequence[WorkerSpec]) -> None:
        """Start all workers, or raise `EngineError` with none of them running."""
        ...

    def send(self, attempt: int, rank: int, message: Message) -> None:
        """Pass a message to a worker; to one that is gone, or of another attempt, it is lost."""
        ...

    def stop_group(self, attempt: int, *, grace_s: float = 0.0) -> None:
        """Return once no worker of `attempt` can write any more; idempotent.

        Workers are asked to end (SIGTERM, to the worker alone), and killed after `grace_s` with all
        they have started. Their ends still come from `next_event`.
        """
        ...

    def stacks(self, attempt: int, timeout_s: float = 5.0) -> Mapping[int, str]:
        """Return where the threads of every worker stand, by rank, as text for people.

        Works whatever the worker does, a loop that never lets go of the interpreter included. Of
        one that cannot answer it says why not: it was put to sleep, or did not react in time.
        """
        ...

    def next_event(self, timeout_s: float | None) -> EngineEvent | None:
        """Return what happened next, None if nothing did in time or `wake` was called."""
        ...

    def wake(self) -> None:
        """Make `next_event` return, now or when it is next called; from any thread or handler."""
        ...

    def close(self) -> None:
        """Stop everything and let go of everything; idempotent."""
        ...

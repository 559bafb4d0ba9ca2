"""The Engine Protocol: the contract of every place where workers run.

An engine knows nothing of training. It starts processes at an entry point, carries messages between
them and the driver, and reports how each process ended, with what a person needs to know of that.
`holdfast.testing.suites.engine` is the proof; `holdfast.engine.selection` chooses one.

What a driver may assume, on one machine or on many:

* *Order.* Messages of one worker arrive in the order in which it sent them, each once, and all of
  them before its `Ended`. Where a delivery may be lost or repeated, the engine numbers deliveries.
* *Ends.* Every worker that was started ends in exactly one `Ended`, also if its node vanishes or
  is silent for longer than the engine allows: then as `Died(node_lost=True)`. What such a node does
  afterwards is never heard of; what it writes to storage is fenced elsewhere (attempt, epoch).
* *Death of the driver.* Workers, reservations and whatever else the engine has made end with the
  driver, however that ends; on a node that cannot be reached, within the limit for silence.
* *Threads.* One thread calls an engine. Only `wake`, and a `WorkerLog`, may be used by any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from holdfast.core.placement import Demand, Node
from holdfast.core.run.outcomes import WorkerExit
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
    "WorkerLog",
    "WorkerSpec",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """A worker to be started: its place, and what it finds when it begins.

    Attributes:
        node: Which node it is to run on, by the name the engine gave.
        log: The file, on that node, that gets everything it prints until an `Assigned` message
            names another.
        first: The message that waits for it when it begins; None if it is sent later.
        environment: Variables of its own; all others are those of its node.
        resources: How much of each resource it uses, for engines whose nodes are shared with
            others. What is reserved is not enforced by every engine.
    """

    rank: int
    node: str
    log: str
    first: Message | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Said:
    """A worker sent a message."""

    group: int
    rank: int
    message: Message


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker has ended, and whatever it had started is gone with it; nothing follows from it.

    Attributes:
        exit: How it ended. Of one that died: by which signal or exit code, whether its node was
            lost or the kernel killed it for memory, and the last lines of its log as far as they
            could be read. The engine finds that out on the node, while it is still to be seen.
        words: The last message of the worker, if it sent one.
    """

    group: int
    exit: WorkerExit
    words: LastWords | None = None


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """A node has joined, left, is about to leave, or has other room: see `Engine.nodes`."""


EngineEvent: TypeAlias = Said | Ended | NodesChanged


class WorkerLog(Protocol):
    """What a worker prints, read where it is; by any one thread, also when the worker has ended.

    Reading never raises for a log that is not there yet, or is out of reach because its node is
    gone: such a log has the size it was last seen to have, and nothing more to read.
    """

    @property
    def where(self) -> str:
        """The place of the log, for people: a path, with its node if that is another machine."""
        ...

    def size_bytes(self) -> int:
        """Return how long the log is; less than before if it was cut to make room."""
        ...

    def read(self, from_byte: int, bytes_max: int) -> bytes:
        """Return at most `bytes_max` bytes of it from a byte on; b"" if there are none, or not yet.

        Raises OSError if the log is there and cannot be read.
        """
        ...

    def close(self) -> None:
        """Let go of it; idempotent."""
        ...


class Engine(Protocol):
    """A place where groups of workers run, several at once; each group has a number of its own.

    The number is the caller's (a run's attempt, a study's launch) and is used once.
    """

    # ------------------------------------------------------------------ room

    def nodes(self) -> Sequence[Node]:
        """Return the nodes that groups can be placed on now; `NodesChanged` follows a change.

        Their room is what this engine may use of them: where others use them as well, what was
        reserved. A node whose end is announced has `Node.leaves`, and is there until it is gone.
        """
        ...

    def can_grow(self) -> bool:
        """Whether nodes may join that are not there now; if not, waiting for room is in vain."""
        ...

    def reserve(self, demand: Demand, workers_min: int, workers_max: int) -> bool:
        """Ask for room for so many workers; return whether there is, for this engine alone.

        All or nothing: until `workers_min` fit, nothing is held that others could use. Returns at
        once; who waits calls it again, after `NodesChanged` or a while, with the same arguments.
        What it got shows in `nodes` and stays reserved until the engine closes, or until a
        reservation with other arguments takes its place. Where a node is lost, an engine that can
        grow tries to get as much elsewhere.
        """
        ...

    def warm_up(self) -> None:
        """Begin what makes the first group start sooner (imports, agents on nodes); needs no call.

        Returns at once. Raises EngineError if it is certain already that no group can start.
        """
        ...

    # ------------------------------------------------------------------ groups

    def start_group(self, group: int, workers: Sequence[WorkerSpec]) -> None:
        """Start all workers, or raise `EngineError` with none of them running and no event due."""
        ...

    def send(self, group: int, rank: int, message: Message) -> None:
        """Pass a message to a worker without waiting; to one that has ended, it is lost."""
        ...

    def stop_group(self, group: int, *, grace_s: float = 0.0) -> None:
        """Return once no worker of `group` can write any more; idempotent.

        Workers are asked to end (SIGTERM, to the worker alone), and killed after `grace_s` with all
        they have started. Their ends still come from `next_event`.
        """
        ...

    def stacks(self, group: int, timeout_s: float = 5.0) -> Mapping[int, str]:
        """Return where the threads of every worker are, by rank, as text for people.

        Works whatever the worker does, a loop that never lets go of the interpreter included. Of
        one that cannot answer the text is the reason: it was put to sleep, or took too long.
        """
        ...

    def log(self, group: int, rank: int) -> WorkerLog:
        """Return the log of a worker of a group that was started and has not ended."""
        ...

    # ------------------------------------------------------------------ events

    def next_event(self, timeout_s: float | None) -> EngineEvent | None:
        """Return what happened next, None if nothing did in time or `wake` was called."""
        ...

    def wake(self) -> None:
        """Make `next_event` return, now or when it is next called; from any thread or handler."""
        ...

    def close(self) -> None:
        """Stop everything and let go of everything; idempotent."""
        ...

"""The Engine Protocol: the contract of every place where workers run.

An engine knows nothing of training. It starts processes at an entry point, carries messages between
them and the driver, and reports how each process ended, in enough detail to explain a failure.
`holdfast.testing.suites.engine` tests the contract; `holdfast.engine.selection` chooses an engine.

What a driver may assume, on one machine or on many:

* *Order.* Messages of one worker arrive in the order in which it sent them, each once, and all of
  them before its `Ended`. Where a delivery may be lost or repeated, the engine numbers deliveries.
* *Ends.* Every worker that was started ends in exactly one `Ended`, also if its node vanishes or
  is silent for longer than the engine allows: then as `Died(node_lost=True)`. No event of such a
  node follows; what it writes to storage is fenced elsewhere (attempt, epoch).
* *Death of the driver.* Workers, reservations and everything else the engine has made end with the
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
    """A worker to be started.

    Attributes:
        node: The node it is to run on, by the name the engine gave.
        log: The file, on that node, that gets everything it prints until an `Assigned` message
            names another.
        first: The message that it finds when it begins; None if it is sent later.
        environment: Variables of its own; all others are those of its node.
        resources: How much of each resource it uses, for engines whose nodes are shared. Not every
            engine enforces that.
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
    """A worker has ended, with everything it had started; no event of it follows.

    Attributes:
        exit: How it ended. If it died: by which signal or exit code, whether its node was lost or
            the kernel killed it for memory, and the last lines of its log if they could be read.
            The engine finds that out on the node, at once.
        words: The last message of the worker, if it sent one.
    """

    group: int
    exit: WorkerExit
    words: LastWords | None = None


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """A node has joined, left, is about to leave, or has more or less room: see `Engine.nodes`."""


EngineEvent: TypeAlias = Said | Ended | NodesChanged


class WorkerLog(Protocol):
    """The output of a worker; may be read by any one thread, also after the worker has ended.

    Reading never raises for a log that does not exist yet, or is out of reach because its node is
    gone: such a log keeps its last size, and has nothing more to read.
    """

    @property
    def where(self) -> str:
        """The place of the log, for people: a path, with its node if that is another machine."""
        ...

    def size_bytes(self) -> int:
        """Return the size of the log; less than before if it was cut to make room."""
        ...

    def read(self, from_byte: int, bytes_max: int) -> bytes:
        """Return at most `bytes_max` bytes from `from_byte` on; b"" if there are none, or not yet.

        Raises OSError if the log exists and cannot be read.
        """
        ...

    def close(self) -> None:
        """Release it; idempotent."""
        ...


class Engine(Protocol):
    """Runs groups of workers, several at once.

    The caller numbers groups (by a run's attempt, a study's launch) and uses each number once.
    """

    # ------------------------------------------------------------------ room

    def nodes(self) -> Sequence[Node]:
        """Return the nodes that groups can be placed on now; `NodesChanged` follows a change.

        Their room is what this engine may use of them: on shared nodes, what was reserved. A node
        whose end is announced has `Node.leaves`, and is listed until it is gone.
        """
        ...

    def can_grow(self) -> bool:
        """Whether more nodes may join; if not, waiting for room is in vain."""
        ...

    def reserve(self, demand: Demand, workers_min: int, workers_max: int) -> bool:
        """Reserve room for so many workers, for this engine alone; return whether it succeeded.

        All or nothing: until `workers_min` fit, nothing is held that others could use. Returns at
        once; a caller that waits calls it again, after `NodesChanged` or a while, with the same
        arguments. The reserved room shows in `nodes` until the engine closes, or until a
        reservation with other arguments replaces it. If a node is lost, an engine that can grow
        tries to get as much elsewhere.
        """
        ...

    def warm_up(self) -> None:
        """Prepare what makes the first group start sooner (imports, agents on nodes); optional.

        Returns at once. Raises EngineError if no group can start.
        """
        ...

    # ------------------------------------------------------------------ groups

    def start_group(self, group: int, workers: Sequence[WorkerSpec]) -> None:
        """Start all workers, or raise `EngineError`: then none of them runs, no event follows."""
        ...

    def send(self, group: int, rank: int, message: Message) -> None:
        """Send a message to a worker without waiting; it is lost if the worker has ended."""
        ...

    def stop_group(self, group: int, *, grace_s: float = 0.0) -> None:
        """Return once no worker of `group` can write any more; idempotent.

        Workers get a SIGTERM, and are killed after `grace_s` with everything they have started.
        `next_event` still returns their ends.
        """
        ...

    def stacks(self, group: int, timeout_s: float = 5.0) -> Mapping[int, str]:
        """Return the stack traces of every worker's threads, by rank, as text for people.

        Works whatever the worker does, even in a loop that never releases the interpreter's lock.
        For a worker that cannot answer the text is the reason: it was put to sleep, or took too
        long.
        """
        ...

    def log(self, group: int, rank: int) -> WorkerLog:
        """Return the log of a worker of a group that was started and has not ended."""
        ...

    # ------------------------------------------------------------------ events

    def next_event(self, timeout_s: float | None) -> EngineEvent | None:
        """Return the next event, None if there was none in time or `wake` was called."""
        ...

    def wake(self) -> None:
        """Make `next_event` return, now or when it is next called; from any thread or handler."""
        ...

    def close(self) -> None:
        """Stop all workers and release everything; idempotent."""
        ...

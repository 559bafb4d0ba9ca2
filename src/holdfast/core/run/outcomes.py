"""How a worker ended, as data: it outlives the process it is about.

Each kind of end is declared here with its facts, its cause and its sentence; what a failure card
shows for it is in `core.failure.kinds`. Other modules use these properties, and match on kinds only
to replace one by another when they know more.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, assert_never, get_args

from holdfast.core.quantities import duration
from holdfast.errors import FormatTooNew

_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV",
            13: "SIGPIPE", 15: "SIGTERM", 1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT"}  # fmt: skip


class Blame(enum.StrEnum):
    """What a group was lost to, from internal to external causes; of several the last counts."""

    CODE = "code"
    HANG = "hang"
    PROCESS = "process"
    NODE = "node"
    PREEMPTION = "preemption"
    START = "start"  # the group never came up

    @property
    def is_failure(self) -> bool:
        """Whether it counts against the failures that a run absorbs."""
        return self not in (Blame.PREEMPTION, Blame.START)

    @property
    def sentence(self) -> str:
        """What happened to the group, to be followed by details."""
        match self:
            case Blame.CODE:
                return "its code raised"
            case Blame.HANG:
                return "it made no progress"
            case Blame.PROCESS:
                return "a process died"
            case Blame.NODE:
                return "a node was lost"
            case Blame.PREEMPTION:
                return "its machines were taken away"
            case Blame.START:
                return "its workers could not be started"
            case _:
                assert_never(self)


class _End(ABC):
    """The interface of all kinds of ends."""

    __slots__ = ()
    rank: int
    node: str

    @property
    @abstractmethod
    def blame(self) -> Blame | None:
        """What the worker was lost to, None if this end alone is no loss."""

    @abstractmethod
    def describe(self) -> str:
        """Return one line for logs and messages; no trace, no newline."""

    @property
    def has_failed(self) -> bool:
        """Whether the worker failed: it did not finish, and was not ended on purpose."""
        return self.blame is not None and self.blame.is_failure


@dataclass(frozen=True, slots=True)
class Finished(_End):
    """The training function returned."""

    rank: int
    node: str

    @property
    def blame(self) -> None:
        return None

    def describe(self) -> str:
        return f"rank {self.rank} finished"


@dataclass(frozen=True, slots=True)
class Raised(_End):
    """The training function raised; `trace` is text, with the user's frames first."""

    rank: int
    node: str
    error: str
    trace: str

    @property
    def blame(self) -> Blame:
        return Blame.CODE

    def describe(self) -> str:
        return f"rank {self.rank} raised {self.error}"


@dataclass(frozen=True, slots=True)
class Died(_End):
    """The process ended unexpectedly: out of memory, a segfault, `kill -9`, `os._exit`.

    Attributes:
        exit_code: What it exited with, None if a signal ended it.
        signal: The signal that ended it, None if it exited.
        out_of_memory: Whether the kernel killed it for the memory it used.
        node_lost: Whether it went down with everything else on its node.
    """

    rank: int
    node: str
    pid: int
    exit_code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    node_lost: bool = False
    last_lines: tuple[str, ...] = ()

    @property
    def blame(self) -> Blame:
        return Blame.NODE if self.node_lost else Blame.PROCESS

    def describe(self) -> str:
        return f"rank {self.rank} (pid {self.pid}) {self.manner}"

    @property
    def manner(self) -> str:
        """How the process died, in a few words."""
        if self.node_lost:
            return f"was lost with node {self.node}"
        if self.out_of_memory:
            return "was killed for using too much memory"
        if self.signal is not None:
            return f"was killed by {_SIGNALS.get(self.signal, f'signal {self.signal}')}"
        return f"exited with code {self.exit_code} before its function returned"


@dataclass(frozen=True, slots=True)
class Hung(_End):
    """The worker made no progress for `idle_s` and was ended; `stacks` is where it stood."""

    rank: int
    node: str
    idle_s: float
    stacks: str

    @property
    def blame(self) -> Blame:
        return Blame.HANG

    def describe(self) -> str:
        return f"rank {self.rank} made no progress for {duration(self.idle_s)}"


@dataclass(frozen=True, slots=True)
class Evicted(_End):
    """The worker was ended on purpose: its node was reclaimed, or its group was stopped."""

    rank: int
    node: str
    preempted: bool = False

    @property
    def blame(self) -> Blame | None:
        return Blame.PREEMPTION if self.preempted else None

    def describe(self) -> str:
        why = f"evicted: node {self.node} is preempted" if self.preempted else "stopped"
        return f"rank {self.rank} was {why}"


WorkerExit: TypeAlias = Finished | Raised | Died | Hung | Evicted
_KINDS: dict[str, type[WorkerExit]] = {kind.__name__.lower(): kind for kind in get_args(WorkerExit)}
KIND_NAMES = frozenset(kind.__name__ for kind in _KINDS.values())


def to_data(ended: WorkerExit) -> dict[str, Any]:
    """Return a worker's end as the journal keeps it."""
    data: dict[str, Any] = {"kind": type(ended).__name__.lower()}
    return data | {field.name: getattr(ended, field.name) for field in fields(ended)}


def from_data(data: Mapping[str, Any]) -> WorkerExit:
    """Return the worker's end that `to_data` was given."""
    kind = _KINDS.get(data["kind"])
    if kind is None:
        raise FormatTooNew(
            f"the journal has a worker that ended as {data['kind']!r}, which this version does not"
            " know",
            hint="resume the run with the version of Holdfast that wrote it, or a newer one",
        )
    facts = {name: value for name, value in data.items() if name != "kind"}
    if "last_lines" in facts:
        facts["last_lines"] = tuple(facts["last_lines"])
    return kind(**facts)

"""How a worker ended: data, not exceptions, so that it outlives the process it tells of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV",
            13: "SIGPIPE", 15: "SIGTERM", 1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finished:
    """The training function returned."""

    rank: int
    node: str


@dataclass(frozen=True, slots=True)
class Raised:
    """The training function raised; `trace` is text, with the user's frames first."""

    rank: int
    node: str
    error: str
    trace: str


@dataclass(frozen=True, slots=True)
class Died:
    """The process ended without a word: out of memory, a segfault, `kill -9`, `os._exit`.

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


@dataclass(frozen=True, slots=True)
class Hung:
    """The worker made no progress for `idle_s` and was ended; `stacks` is where it stood."""

    rank: int
    node: str
    idle_s: float
    stacks: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """The worker was ended on purpose: its node was reclaimed, or we stopped its group."""

    rank: int
    node: str
    preempted: bool = False


WorkerExit: TypeAlias = Finished | Raised | Died | Hung | Evicted
_KINDS: dict[str, type[WorkerExit]] = {
    kind.__name__.lower(): kind for kind in (Finished, Raised, Died, Hung, Evicted)
}


def describe(ended: WorkerExit) -> str:
    """Return one line for logs and messages; no trace, no newline."""
    match ended:
        case Finished(rank):
            return f"rank {rank} finished"
        case Raised(rank, _, error):
            return f"rank {rank} raised {error}"
        case Died(rank, node, pid) if ended.node_lost:
            return f"rank {rank} (pid {pid}) was lost with node {node}"
        case Died(rank, _, pid):
            return f"rank {rank} (pid {pid}) {how_it_died(ended)}"
        case Hung(rank, _, idle_s):
            return f"rank {rank} made no progress for {idle_s:.0f} s"
        case Evicted(rank, node):
            why = f"evicted: node {node} is preempted" if ended.preempted else "stopped"
            return f"rank {rank} was {why}"
        case _:
            assert_never(ended)


def likeness(error: str) -> str:
    """Return an error's text without what differs each time: numbers and addresses."""
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", error)


def how_it_died(died: Died) -> str:
    """Return the manner of a process's death in a few words."""
    if died.out_of_memory:
        return "was killed for using too much memory"
    if died.signal is not None:
        return f"was killed by {_SIGNALS.get(died.signal, f'signal {died.signal}')}"
    return f"exited with code {died.exit_code} before its function returned"


def to_data(ended: WorkerExit) -> dict[str, Any]:
    """Return a worker's end as the journal keeps it."""
    data: dict[str, Any] = {"kind": type(ended).__name__.lower()}
    return data | {name: getattr(ended, name) for name in ended.__slots__}


def from_data(data: Mapping[str, Any]) -> WorkerExit:
    """Return the worker's end that `to_data` was given."""
    fields = {name: value for name, value in data.items() if name != "kind"}
    if "last_lines" in fields:
        fields["last_lines"] = tuple(fields["last_lines"])
    return _KINDS[data["kind"]](**fields)

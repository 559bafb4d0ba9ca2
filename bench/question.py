"""What a question is: sides that do the same work, and claims about their ratios.

A side is measured once per round and the sides take turns (a b c, b c a, ...), so that whatever
else the machine does falls on all of them. A claim is worked out within each round and only then
summed up, so that a slow minute does not count as a slow side.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers import why_no_peer

MIB = 1 << 20

Round = Mapping[
    str, float
]  # what each side measured, in the unit of the question: "side", "side x"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much work the questions do.

    Attributes:
        saved_bytes: The size of a checkpoint.
        files: How many files it has where it has many.
        events: How many events are appended, or replayed, per measurement.
        growth: Lengths of the journals whose cost per event is compared.
        rounds: Measurements per side that count; one more comes first and does not.
        launches: The same, where every measurement starts processes.
        slow_peers: Whether to wait for peers that take half a minute to start.
    """

    saved_bytes: int
    files: int
    events: int
    growth: Sequence[int]
    rounds: int
    launches: int
    slow_peers: bool


FULL = Scale(
    saved_bytes=256 * MIB,
    files=2000,
    events=200_000,
    growth=(1_000, 10_000, 100_000, 1_000_000),
    rounds=7,
    launches=5,
    slow_peers=True,
)
QUICK = Scale(
    saved_bytes=64 * MIB,
    files=500,
    events=50_000,
    growth=(1_000, 10_000, 100_000),
    rounds=5,
    launches=3,
    slow_peers=False,
)


@dataclass(frozen=True)
class Setting:
    """Where and how much: an empty folder on the disk to be measured, and the scale."""

    folder: Path
    scale: Scale

    @contextmanager
    def below(self, name: str, *, stays: bool = False) -> Iterator[Setting]:
        """Give the same with a folder of its own below this one, which goes afterwards.

        One that stays is left to whoever removes this one: of some disks a hundred thousand files
        that were deleted make the next ones slow for minutes, and other questions come after.
        """
        folder = self.folder / name
        folder.mkdir()
        try:
            yield Setting(folder, self.scale)
        finally:
            if not stays:
                remove(folder)

    def why_no_slow(self, package: str) -> str:
        """Return why a peer that takes long to start is left out, "" if it is not."""
        if not self.scale.slow_peers:
            return "takes long to start, so it is not in a quick run"
        return why_no_peer(package)


@dataclass(frozen=True)
class Side:
    """One way to do the work; `measure` does it once and returns a figure in the question's unit.

    It prepares and tidies up outside the part it times. Where it finds more than one figure, it
    returns them by name, the main one as "". A side that is left out says why; one that takes long
    is measured in the first `rounds_max` rounds only, and does not warm up; None for in all rounds.
    """

    name: str
    measure: Callable[[], float | Mapping[str, float]]
    left_out: str = ""
    rounds_max: int | None = None
    ours: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether a failure of it is one of Holdfast's, whatever the side is called."""
        return self.ours or self.name.startswith("holdfast")


@dataclass(frozen=True)
class Bar:
    """What a figure must reach, or must not exceed."""

    limit: float
    at_most: bool = False

    def is_met_by(self, figure: float) -> bool:
        return figure <= self.limit if self.at_most else figure >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.limit:,g}"


@dataclass(frozen=True)
class Figure:
    """What is worked out from a round in which these sides were measured.

    Only a ratio says something about another machine, or another day.
    """

    sides: tuple[str, ...]
    work_out: Callable[..., float]
    is_ratio: bool = False

    def of(self, measured: Round) -> float:
        return self.work_out(*(measured[side] for side in self.sides))


@dataclass(frozen=True)
class Claim:
    """A figure worked out from each round, and the bar it must meet; None for information only."""

    text: str
    figure: Figure
    bar: Bar | None = None


@dataclass(frozen=True)
class Question:
    """Sides that do the same work, what they are measured in, and what is claimed of them.

    `rounds_max` is for a question that takes long; None means as many rounds as the others. One
    whose sides are at work for minutes need not warm up.
    """

    what: str
    unit: str
    sides: Sequence[Side]
    claims: Sequence[Claim]
    rounds_max: int | None = None
    warms_up: bool = True


Asking = Callable[[Setting], AbstractContextManager[Question]]  # sets up, and tidies up afterwards


def remove(folder: Path) -> None:
    """Remove a folder, as far as that can be done: a peer may leave what cannot be.

    A disk is slow to look up each of a hundred thousand files; several who remove some of them
    each are several times as fast as one.
    """
    if shutil.which("find") and shutil.which("xargs"):
        files = ["find", str(folder), "!", "-type", "d", "-print0"]
        removers = ["xargs", "-0", "-r", "-P", "8", "-n", "500", "rm", "-f"]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(files, stdout=subprocess.PIPE, stderr=quiet) as found:
            subprocess.run(removers, stdin=found.stdout, stderr=quiet, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def at_least(limit: float) -> Bar:
    return Bar(limit)


def at_most(limit: float) -> Bar:
    return Bar(limit, at_most=True)


def ratio(side: str, other: str) -> Figure:
    return Figure((side, other), lambda one, two: one / two, is_ratio=True)


def difference(side: str, other: str) -> Figure:
    return Figure((side, other), lambda one, two: one - two)


def value(side: str) -> Figure:
    return Figure((side,), lambda one: one)


def seconds(work: Callable[[], object], *, after: Callable[[], None] | None = None) -> float:
    """Return how long `work` takes, begun when the disk is done with whatever came before.

    `after` is called in between and not counted.
    """
    os.sync()
    if after is not None:
        after()
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun

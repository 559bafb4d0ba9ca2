"""A dataset's plan: the source of its rows and the steps applied to them, as a tree.

Nothing runs until rows are read. The reader says which rows of the result are wanted, and each step
requests only what it needs from its input: a rank that wants every fourth row maps only those, and
row groups that contain none of them are never opened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from holdfast.data.blocks import Block, size_of, take
from holdfast.data.selection import EVERYTHING, Wanted, shifted, within


@dataclass(frozen=True, eq=False, repr=False)
class Plan(ABC):
    """Rows, in an order that is the same in every read with the same epoch.

    The epoch affects only the order, and only below a `Shuffle`. The reader owns what is yielded:
    writing to it does not affect later reads.
    """

    inputs: tuple[Plan, ...] = ()

    kind: ClassVar[str]
    """The name of the step in stored states; it must not change."""

    keeps_rows: ClassVar[bool] = False
    """Whether row n of the result depends only on row n of the only input."""

    @abstractmethod
    def length(self) -> int | None:
        """Return the number of rows; None if all rows must be read to know it."""

    def read(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        """Yield the wanted rows, as `blocks` does, in a new pass.

        The state of steps belongs to one pass, so that the results are the same in every epoch, on
        every rank and after every resume.
        """
        return self.fresh().blocks(wanted, epoch)

    def fresh(self) -> Plan:
        """Return this plan with new steps that have no state."""
        if not self.inputs:
            return self
        return replace(self, inputs=tuple(plan.fresh() for plan in self.inputs))

    @abstractmethod
    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        """Yield the wanted rows in order, in blocks of any size; missing rows are skipped."""

    @abstractmethod
    def described(self) -> str:
        """Return a short description of this step, without its inputs."""

    def identity(self) -> dict[str, Any]:
        """Return, as plain data, what identifies this step among its kind; seeds are left out."""
        return {}

    def described_as_a_whole(self) -> str:
        """Return a short description of this step and its inputs, in the order they run."""
        steps, plan = [self.described()], self
        while plan.inputs:
            plan = plan.inputs[0]
            steps.append(plan.described())
        return ", ".join(reversed(steps))

    def may_change_its_length(self) -> bool:
        """Whether epochs may differ in their number of rows although no step is random.

        This is so if functions get batches whose rows differ in every epoch.
        """
        return any(plan.may_change_its_length() for plan in self.inputs)

    def seeds(self) -> list[int]:
        """Return the seed of every shuffle in the tree, in a fixed order."""
        return [seed for plan in self.inputs for seed in plan.seeds()]

    def reseeded(self, seeds: Iterator[int]) -> Plan:
        """Return this plan with other seeds, taken from `seeds` in the order of `seeds()`."""
        if not self.inputs:
            return self
        return replace(self, inputs=tuple(plan.reseeded(seeds) for plan in self.inputs))

    def shared(self) -> Plan:
        """Return this plan with large rows in memory moved to shared memory.

        It is valid in any process of this machine while the one that shared it lives.
        """
        if not self.inputs:
            return self
        return replace(self, inputs=tuple(plan.shared() for plan in self.inputs))

    def count(self) -> int:
        """Return the number of rows, reading them all if necessary."""
        length = self.length()
        return sum(map(size_of, self.read(EVERYTHING, 0))) if length is None else length


@dataclass(frozen=True, eq=False, repr=False)
class Cut(Plan):
    """The rows from `start` up to `stop`, exclusive; None is the end.

    Below a cut, the order does not change with the epoch: otherwise it would select other rows, and
    training would see rows for testing.
    """

    start: int = 0
    stop: int | None = None
    kind: ClassVar[str] = "cut"

    def identity(self) -> dict[str, Any]:
        return {"start": self.start, "stop": self.stop}

    def length(self) -> int | None:
        rows = self.inputs[0].length()
        if rows is None:
            return None
        return max(0, (rows if self.stop is None else min(self.stop, rows)) - self.start)

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        stop = EVERYTHING.stop if self.stop is None else self.stop
        ours = within(wanted, 0, max(0, stop - self.start))
        return self.inputs[0].blocks(shifted(ours, self.start), 0)

    def described(self) -> str:
        return f"rows {self.start} to {'the end' if self.stop is None else self.stop}"


@dataclass(frozen=True, eq=False, repr=False)
class Union(Plan):
    """The rows of several plans, one after the other."""

    kind: ClassVar[str] = "union"

    def identity(self) -> dict[str, Any]:
        return {"parts": len(self.inputs)}

    def length(self) -> int | None:
        total = 0
        for plan in self.inputs:
            rows = plan.length()
            if rows is None:
                return None
            total += rows
        return total

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        low = 0
        for plan in self.inputs:
            if not len(wanted) or low > wanted[-1]:
                return
            rows = plan.length()
            if rows is not None:
                here = within(wanted, low, low + rows)
                if len(here):
                    yield from plan.blocks(here, epoch)
                low += rows
                continue
            for block in plan.blocks(EVERYTHING, epoch):
                here = within(wanted, low, low + size_of(block))
                if len(here):
                    yield take(block, here)
                low += size_of(block)

    def described(self) -> str:
        return f"union of {len(self.inputs)}"


@dataclass(frozen=True, eq=False, repr=False)
class WholeRounds(Plan):
    """Rows dealt out to `players` in turn, from row `start` on, in complete rounds only.

    The rows of an incomplete last round are left out, so that every player has the same number. If
    the number of rows is not known before, `counted` is called with it once all are read.
    """

    players: int = 1
    start: int = 0
    counted: Callable[[int], None] | None = None
    kind: ClassVar[str] = "whole_rounds"

    def length(self) -> int | None:
        rows = self.inputs[0].length()
        return None if rows is None else self._whole(rows)

    def _whole(self, rows: int) -> int:
        return self.start + max(0, rows - self.start) // self.players * self.players

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        length = self.length()
        if length is not None:
            yield from self.inputs[0].blocks(within(wanted, 0, length), epoch)
            return
        # The end is unknown, so a row is held back until its round is complete.
        held: list[Block] = []
        low, given = self.start, 0
        for block in self.inputs[0].blocks(range(self.start, EVERYTHING.stop), epoch):
            held.append(take(block, within(wanted, low, low + size_of(block))))
            low += size_of(block)
            ready = len(within(wanted, 0, self._whole(low))) - given
            given += ready
            while ready:
                first = held.pop(0)
                size = size_of(first)
                if size > ready:
                    held.insert(0, take(first, range(ready, size)))
                    first, size = take(first, range(ready)), ready
                ready -= size
                yield first
        if self.counted is not None:
            self.counted(low)

    def described(self) -> str:
        return f"whole rounds of {self.players}"

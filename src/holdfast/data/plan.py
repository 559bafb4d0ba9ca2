"""A dataset's plan: where rows come from and what is done to them, as a tree of frozen values.

Nothing runs until somebody reads. Whoever reads says which rows of the result are wanted, and each
step asks the one below for no more than it needs: a rank that wants every fourth row maps only
those, and row groups that hold none of them are never opened.
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
    """Rows in an order that is the same whenever it is read with the same epoch.

    The epoch decides nothing but the order, and only of what `Shuffle` shuffled. What is yielded
    belongs to the reader: writing to it changes nothing that is read again.
    """

    inputs: tuple[Plan, ...] = ()

    kind: ClassVar[str]
    """What the step is called in records, which outlive its class's name."""

    keeps_rows: ClassVar[bool] = False
    """Whether row n of the result is made of row n of the only input, and of nothing else."""

    @abstractmethod
    def length(self) -> int | None:
        """Return how many rows there are; None if only reading them all would tell."""

    def read(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        """Yield the wanted rows, as `blocks` does, in a pass of its own.

        What steps remember is of one pass: it has to come out alike in every epoch, on every rank
        and after every resume.
        """
        return self.fresh().blocks(wanted, epoch)

    def fresh(self) -> Plan:
        """Return this plan with steps that have not run yet."""
        if not self.inputs:
            return self
        return replace(self, inputs=tuple(plan.fresh() for plan in self.inputs))

    @abstractmethod
    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        """Yield the wanted rows, in order, a block at a time; rows that are not there are left out.

        How the rows are cut into blocks means nothing.
        """

    @abstractmethod
    def described(self) -> str:
        """Return a few words for this step, without those below."""

    def identity(self) -> dict[str, Any]:
        """Return, as plain data, what tells this step from others of its kind; seeds do not."""
        return {}

    def described_as_a_whole(self) -> str:
        """Return a few words for this step and those below it, in the order in which they run."""
        steps, plan = [self.described()], self
        while plan.inputs:
            plan = plan.inputs[0]
            steps.append(plan.described())
        return ", ".join(reversed(steps))

    def may_change_its_length(self) -> bool:
        """Whether an epoch may have more rows than another although no step goes by chance.

        So it is where functions see batches, and these are of other rows in every epoch.
        """
        return any(plan.may_change_its_length() for plan in self.inputs)

    def seeds(self) -> list[int]:
        """Return the seed of every shuffle in the tree, in a fixed order."""
        return [seed for plan in self.inputs for seed in plan.seeds()]

    def reseeded(self, seeds: Iterator[int]) -> Plan:
        """Return this plan with other seeds, taken in the order in which `seeds` gives them."""
        if not self.inputs:
            return self
        return replace(self, inputs=tuple(plan.reseeded(seeds) for plan in self.inputs))

    def shared(self) -> Plan:
        """Return this plan with what is large in memory put where all processes can read it.

        Such a plan is good in any process of this machine while the one that shared it lives.
        """
        if not self.inputs:
            return self
        return replace(self, inputs=tuple(plan.shared() for plan in self.inputs))

    def count(self) -> int:
        """Return how many rows there are, reading them all if there is no other way."""
        known = self.length()
        return sum(map(size_of, self.read(EVERYTHING, 0))) if known is None else known


@dataclass(frozen=True, eq=False, repr=False)
class Cut(Plan):
    """The rows from `start` to before `stop`; None is the end.

    Below a cut the order does not change with the epoch: else other rows would be cut out, and
    rows for testing would be trained on.
    """

    start: int = 0
    stop: int | None = None
    kind: ClassVar[str] = "cut"

    def identity(self) -> dict[str, Any]:
        return {"start": self.start, "stop": self.stop}

    def length(self) -> int | None:
        below = self.inputs[0].length()
        if below is None:
            return None
        return max(0, (below if self.stop is None else min(self.stop, below)) - self.start)

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
    """Rows dealt out to `players` in turn, from row `start` on, until a round is not complete.

    The rows of the last, incomplete round are left out, so that every player has the same number.
    Where only reading tells how many rows there are, `counted` is called with that, once, as soon
    as all are read.
    """

    players: int = 1
    start: int = 0
    counted: Callable[[int], None] | None = None
    kind: ClassVar[str] = "whole_rounds"

    def length(self) -> int | None:
        below = self.inputs[0].length()
        return None if below is None else self._whole(below)

    def _whole(self, rows: int) -> int:
        return self.start + max(0, rows - self.start) // self.players * self.players

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        known = self.length()
        if known is not None:
            yield from self.inputs[0].blocks(within(wanted, 0, known), epoch)
            return
        # Nobody knows where the rows end, so a row is held back until its round is complete.
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

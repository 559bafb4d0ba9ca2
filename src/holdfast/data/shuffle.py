"""Shuffles whose order depends only on a seed and an epoch.

So every rank, in every attempt, on any number of machines, sees the same order, and a position in
it means the same rows to all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from holdfast.data.blocks import Block, chunks, regrouped, size_of, take
from holdfast.data.conversion import joined
from holdfast.data.libraries import library
from holdfast.data.plan import Plan
from holdfast.data.selection import EVERYTHING, Wanted, cut, indices, within

PASS_ROWS = 1_000_000  # rows whose windows are planned at once, at 16 bytes each


@dataclass(frozen=True, eq=False, repr=False)
class Shuffle(Plan):
    """Rows in another order for each epoch: all shuffled, or each `window` of rows on its own.

    Only wanted rows are held in memory, a window at a time; if the number of rows is unknown, all
    rows of a window are.
    """

    seed: int = 0
    window: int | None = None
    kind: ClassVar[str] = "shuffle"

    def identity(self) -> dict[str, Any]:
        return {"window": self.window}

    def length(self) -> int | None:
        return self.inputs[0].length()

    def seeds(self) -> list[int]:
        return [*super().seeds(), self.seed]

    def reseeded(self, seeds: Iterator[int]) -> Plan:
        inputs = tuple(plan.reseeded(seeds) for plan in self.inputs)
        return replace(self, inputs=inputs, seed=next(seeds))

    def described(self) -> str:
        return "shuffle" if self.window is None else f"shuffle within {self.window} rows"

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        rows = self.length()
        if rows is None:
            return self._read_whole(wanted, epoch)
        return self._read_wanted(within(wanted, 0, rows), epoch, rows)

    def _read_wanted(self, wanted: Wanted, epoch: int, rows: int) -> Iterator[Block]:
        if not len(wanted):
            return
        window = min(self.window or rows, rows)
        first, last = int(wanted[0]) // window, int(wanted[-1]) // window
        for numbers in cut(range(first, last + 1), max(1, PASS_ROWS // window)):
            yield from self._read_windows(numbers, window, wanted, epoch, rows)

    def _read_windows(
        self, numbers: range, window: int, wanted: Wanted, epoch: int, rows: int
    ) -> Iterator[Block]:
        """Read only wanted rows: windows follow one another, so one pass yields them all."""
        np = library("numpy")
        places, orders = [], []
        for number in numbers:
            low = number * window
            size = min(window, rows - low)
            here = within(wanted, low, low + size)
            if len(here):
                sources = self._order(size, epoch, number)[indices(here)]
                orders.append(np.argsort(sources))
                places.append(low + np.sort(sources))
        if not orders:
            return
        stream = self.inputs[0].blocks(np.concatenate(places), epoch)
        groups = regrouped(stream, map(len, orders))
        for order, group in zip(orders, groups, strict=True):
            yield from chunks(take(joined(group), np.argsort(order)))

    def _read_whole(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        stream = self.inputs[0].blocks(EVERYTHING, epoch)
        low = 0
        for number, group in enumerate(
            regrouped(stream, itertools.repeat(self.window or EVERYTHING.stop))
        ):
            if not len(wanted) or low > wanted[-1]:
                return
            size = sum(map(size_of, group))
            here = within(wanted, low, low + size)
            if len(here):
                order = self._order(size, epoch, number)
                yield from chunks(take(joined(group), order[indices(here)]))
            low += size

    def _order(self, size: int, epoch: int, number: int) -> Any:
        """Return a permutation of `size` rows that no release of numpy changes.

        numpy promises never to change `RandomState`; a run may be resumed under another version.
        """
        from hashlib import blake2b

        np = library("numpy")
        key = f"{self.seed}/{epoch}/{self.window}/{number}".encode()
        words = np.frombuffer(blake2b(key, digest_size=32).digest(), dtype="<u4")
        return np.random.RandomState(words).permutation(size)

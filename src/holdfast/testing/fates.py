"""The fates of changes that were not yet durable when the power was cut, and their combinations.

A fate is a number: `KEPT`, `LOST`, the number of bytes after which a write was cut, or one of the
two ways in which a file has grown without all of its bytes. All combinations of fates are tried if
that is affordable, else a selection.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.testing.oplog import Change, Named, Truncated, Written, overwrite, resize

Fate: TypeAlias = int
LOST: Fate = 0
KEPT: Fate = -1
ZEROS: Fate = -2  # the file grew, and zeros are where the bytes should be
HOLE: Fate = -3  # the file grew, and only the second half of the bytes was written
CUT_SHARE = 0.3  # how often a sampled write may be cut


@dataclass(frozen=True, slots=True)
class Pending:
    """A change that is not durable yet.

    Attributes:
        position: Its place in the log, from 1.
        change: What was done.
        fates: Its possible fates, KEPT first; KEPT alone once it was synced.
        needs: Positions of changes it comes after: kept, or made durable, only with them.
        homes: Positions of changes that name the folder it leads into: kept only with them, too.
    """

    position: int
    change: Change
    fates: tuple[Fate, ...]
    needs: tuple[int, ...] = ()
    homes: tuple[int, ...] = ()

    @property
    def is_name(self) -> bool:
        return isinstance(self.change, Named)

    def described(self, fate: Fate) -> str:
        """Describe the change, and which part of it survived, if any."""
        if fate == LOST:
            return str(self.change)
        parts = {ZEROS: "zeros instead", HOLE: "zeros instead of its first half"}
        return f"{self.change} ({parts.get(fate, f'only the first {fate}')})"


def fates_of(change: Change) -> tuple[Fate, ...]:
    """Return the possible fates of a change; writes are cut near both ends and in the middle."""
    if not isinstance(change, Written):
        return KEPT, LOST
    size = len(change.data)
    cuts = sorted({cut for cut in (1, size // 2, size - 1) if 0 < cut < size})
    return (KEPT, LOST, *cuts, ZEROS, HOLE) if size > 1 else (KEPT, LOST, ZEROS)


def content_after(content: bytes, changes: Sequence[Change], fates: Sequence[Fate]) -> bytes:
    """Return the content of a file after its pending changes met these fates."""
    result = bytearray(content)
    for change, fate in zip(changes, fates, strict=True):
        if fate == LOST:
            continue
        if isinstance(change, Truncated):
            resize(result, change.size)
        elif not isinstance(change, Written):
            continue  # a name holds no bytes
        elif fate == KEPT:
            overwrite(result, change.offset, change.data)
        elif fate > 0:
            overwrite(result, change.offset, change.data[:fate])
        else:
            resize(result, max(len(result), change.offset + len(change.data)))
            if fate == HOLE:
                half = len(change.data) // 2
                overwrite(result, change.offset + half, change.data[half:])
    return bytes(result)


@dataclass(frozen=True, slots=True)
class Effort:
    """How many combinations of fates to try at one moment.

    Attributes:
        combinations_max: Up to this many, all are tried. Beyond it, all combinations of kept and
            lost if these are few enough, else a selection: none, all, each one lost, each one
            kept, every prefix. Cut writes are then tried one at a time.
        samples: How many random combinations to add where not all are tried.
        seed: The seed of the samples; equal seeds and equal logs give equal states.
    """

    combinations_max: int = 512
    samples: int = 64
    seed: int = 0


class Choices:
    """The legal combinations of fates of the changes that are pending at one moment.

    With `pinned`, only those in which the last change is not lost.
    """

    def __init__(self, pending: Sequence[Pending], effort: Effort, *, pinned: bool) -> None:
        self._effort = effort
        places = {item.position: place for place, item in enumerate(pending)}
        self._needs = [
            [places[need] for need in (*item.needs, *item.homes) if need in places]
            for item in pending
        ]
        sure = self._with_needs({len(pending) - 1}) if pinned else set()
        self._options = [
            tuple(fate for fate in item.fates if fate != LOST) if place in sure else item.fates
            for place, item in enumerate(pending)
        ]

    @property
    def are_all(self) -> bool:
        """Whether every combination will be tried."""
        return math.prod(map(len, self._options)) <= self._effort.combinations_max

    def __iter__(self) -> Iterator[tuple[Fate, ...]]:
        tried: set[tuple[Fate, ...]] = set()
        for wanted in self._wanted():
            legal = self._make_legal(wanted)
            if legal not in tried:
                tried.add(legal)
                yield legal

    def _wanted(self) -> Iterator[Sequence[Fate]]:
        if self.are_all:
            yield from itertools.product(*self._options)
            return
        whole = [[fate for fate in fates if fate in (KEPT, LOST)] for fates in self._options]
        if math.prod(map(len, whole)) <= self._effort.combinations_max:
            yield from itertools.product(*whole)
        else:
            yield from self._systematic()
        yield from self._cut_one_by_one()
        dice = random.Random(f"{self._effort.seed} {len(self._options)}")
        for _ in range(self._effort.samples):
            yield [
                dice.choice(fates if dice.random() < CUT_SHARE else kept_or_lost)
                for fates, kept_or_lost in zip(self._options, whole, strict=True)
            ]

    def _systematic(self) -> Iterator[Sequence[Fate]]:
        """Yield every prefix, among them none and all; each change lost alone; each kept alone."""
        count = len(self._options)
        for place in range(count + 1):
            yield [KEPT] * place + [LOST] * (count - place)
        for place in range(count):
            yield [LOST if index == place else KEPT for index in range(count)]
            needed = self._with_needs({place})
            yield [KEPT if index in needed else LOST for index in range(count)]

    def _cut_one_by_one(self) -> Iterator[Sequence[Fate]]:
        """Yield each cut with all others kept, with only what came before it, and alone."""
        for place, fates in enumerate(self._options):
            after = len(self._options) - place - 1
            for fate in fates:
                if fate not in (KEPT, LOST):
                    yield [KEPT] * place + [fate] + [KEPT] * after
                    yield [KEPT] * place + [fate] + [LOST] * after
                    yield [LOST] * place + [fate] + [LOST] * after

    def _with_needs(self, places: set[int]) -> set[int]:
        needed = set(places)
        for place in range(len(self._needs) - 1, -1, -1):
            if place in needed:
                needed.update(self._needs[place])  # all of them lie before it
        return needed

    def _make_legal(self, wanted: Sequence[Fate]) -> tuple[Fate, ...]:
        """Keep changes that may not be lost, and lose those that need a lost one."""
        legal: list[Fate] = []
        for fate, fates, needs in zip(wanted, self._options, self._needs, strict=True):
            if any(legal[need] == LOST for need in needs):
                legal.append(LOST)
            else:
                legal.append(fate if fate in fates else KEPT)
        return tuple(legal)

"""Selections of rows: ascending row numbers, as a `range` or as a numpy array of integers.

A `range` expresses "every third row from the seventh on" in no space, and stays open at its end
while the number of rows is unknown; an array holds what a shuffle selects.
"""

from __future__ import annotations

import sys
from typing import Any

from holdfast.data.libraries import library

Wanted = Any  # range | numpy.ndarray of ascending integers

EVERYTHING = range(sys.maxsize)


def within(wanted: Wanted, low: int, high: int) -> Wanted:
    """Return the part of `wanted` in rows `low` to `high`, counted from `low`."""
    if isinstance(wanted, range):
        late = max(0, low - wanted.start)
        first = wanted.start + -(-late // wanted.step) * wanted.step
        last = min(wanted.stop, high)
        return range(first - low, max(first, last) - low, wanted.step)
    np = library("numpy")
    begin, end = np.searchsorted(wanted, (low, high))
    return wanted[begin:end] - low


def shifted(wanted: Wanted, by: int) -> Wanted:
    """Return `wanted` with `by` added to each row number."""
    if isinstance(wanted, range):
        return range(wanted.start + by, min(wanted.stop + by, sys.maxsize), wanted.step)
    return wanted + by


def indices(wanted: Wanted) -> Any:
    """Return `wanted` as a numpy array; its end must be known."""
    if isinstance(wanted, range):
        return library("numpy").arange(wanted.start, wanted.stop, wanted.step)
    return wanted


def cut(wanted: Wanted, rows: int) -> list[Wanted]:
    """Return `wanted` in pieces of at most `rows` row numbers; its end must be known."""
    return [wanted[low : low + rows] for low in range(0, len(wanted), rows)]

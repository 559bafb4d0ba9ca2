"""The metric history of a run: picks the row that counts for each step after rewinds.

An attempt that begins after a checkpoint at step k does every step after k again and supersedes
what earlier attempts reported for those steps. Attempt numbers are never reused, so the order in
which rows were written or read does not matter: a row of a driver that had been replaced belongs to
an earlier attempt, and loses like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.core.checkpoint.record import Kept


@dataclass(frozen=True, slots=True)
class Row:
    """What a run reported at one step; `time` is seconds since 1970."""

    step: int
    attempt: int
    time: float
    metrics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Begin:
    """An attempt began from the checkpoint at step `after`, 0 if from scratch."""

    begin: int
    after: int
    time: float


def history_of(rows: Sequence[Row], begins: Iterable[Begin]) -> list[Row]:
    """Return every step once, in order of steps.

    Of two rows of the same step the one of the later attempt counts, of the same attempt the first
    in `rows`. An attempt without a `Begin` is taken to begin with its first row.
    """
    ends = _ends(rows, begins)
    by_step: dict[int, Row] = {}
    for row in rows:
        if row.step <= ends[row.attempt]:
            rival = by_step.get(row.step)
            if rival is None or rival.attempt < row.attempt:
                by_step[row.step] = row
    return [by_step[step] for step in sorted(by_step)]


def _ends(rows: Iterable[Row], begins: Iterable[Begin]) -> dict[int, float]:
    """Return up to which step the rows of each attempt count."""
    after: dict[int, int] = {}
    for begun in begins:
        after[begun.begin] = min(begun.after, after.get(begun.begin, begun.after))
    firsts: dict[int, int] = {}
    for row in rows:
        if row.step < firsts.setdefault(row.attempt, row.step):
            firsts[row.attempt] = row.step
    ends: dict[int, float] = {}
    end = float("inf")
    for attempt in sorted(after.keys() | firsts.keys(), reverse=True):
        ends[attempt] = end
        end = min(end, after[attempt] if attempt in after else firsts[attempt] - 1)
    return ends


def rows_of(checkpoints: Iterable[Kept]) -> Iterator[Row]:
    """Yield the rows that checkpoints carry with them, which no crash can lose."""
    for source in checkpoints:
        if source.step is not None:
            yield Row(source.step, source.attempt, source.created, source.metrics)


# Sets of types: most metrics are of these, and a set lookup is faster than isinstance.
_SINGLE = frozenset({float, int, str, bool, type(None)})
_NUMBERS = frozenset({float, int})


def is_number(value: object) -> bool:
    """Whether `value` is an int or a float; True and False are not numbers here."""
    if type(value) in _NUMBERS:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool)


def flattened(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics without nesting: `b` inside `a` becomes `a/b`.

    If a metric with that name was reported too, it keeps the name and the nested one is left out.
    """
    flat: dict[str, Any] = {}
    for name, value in metrics.items():
        if type(value) in _SINGLE or not isinstance(value, Mapping):
            flat[name] = value
            continue
        for inner, below in flattened(value).items():
            full = f"{name}/{inner}"
            if full not in metrics:
                flat[full] = below
    return flat

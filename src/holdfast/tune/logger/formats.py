"""Formats of row files, as pure data: records, and the Protocol of what turns them into bytes.

A file is an opening and records; a record is what one result became, with the step it belongs to.
Of two records of one step the later counts, and what stands between them was superseded with the
first, so that a file holds every step once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from holdfast.core.checkpoint.retention import score_of
from holdfast.tune.result import TRAINING_ITERATION

P = TypeVar("P")
# The number of the result among those of its trial; written to rows whose training iteration, which
# users may set, is another number, because rows are told apart by it.
STEP = "holdfast_step"


class Record(NamedTuple, Generic[P]):
    """One entry of a file; `step` is that of its result, None if it belongs to none."""

    step: int | None
    payload: P


@dataclass(frozen=True, slots=True)
class Content(Generic[P]):
    """What is in a file.

    Attributes:
        head: What the format must know of the whole file to render a record.
        records: All that are whole, in order.
    """

    head: Any
    records: list[Record[P]]


class Format(Protocol[P]):
    """How results become bytes, and back."""

    def prepare(self, row: Mapping[str, Any]) -> P:
        """Return what is kept of a result; it no longer depends on the result."""
        ...

    def load(self, data: bytes) -> Content[P]:
        """Return what is whole in the bytes of a file, whatever has happened to them."""
        ...

    def grown(self, head: Any, payloads: Iterable[P]) -> Any:
        """Return the head of a file to which these are added: the same one if it need not grow."""
        ...

    def opening(self, head: Any) -> bytes:
        """Return the bytes that come before the first record."""
        ...

    def render(self, head: Any, payload: P) -> bytes:
        """Return the bytes of one record."""
        ...


def step_of(row: Mapping[str, Any]) -> int | None:
    """Return the step that a result belongs to, None if it does not say."""
    if type(counted := row.get(STEP)) is int:
        return counted
    if type(plain := row.get(TRAINING_ITERATION)) is int:
        return plain
    iteration = score_of(row, TRAINING_ITERATION)
    try:
        return None if iteration is None else int(iteration)
    except (ValueError, OverflowError):  # NaN, infinity
        return None


def record_of(format_: Format[P], row: Mapping[str, Any]) -> Record[P]:
    """Return the record that a result becomes."""
    return Record(step_of(row), format_.prepare(row))


def each_once(records: Sequence[Record[P]]) -> list[Record[P]]:
    """Return the records that count: of each iteration the last, none that was superseded."""
    valid: list[Record[P]] = []
    lowest: float = float("inf")
    for record in reversed(records):
        if record.step is None:
            valid.append(record)
        elif record.step < lowest:
            valid.append(record)
            lowest = record.step
    return valid[::-1]


def up_to(records: Iterable[Record[P]], step: float) -> list[Record[P]]:
    """Return the records of no later iteration than `step`."""
    return [record for record in records if record.step is None or record.step <= step]


def first_step(records: Iterable[Record[P]]) -> int | None:
    """Return the earliest iteration among the records."""
    return next((record.step for record in records if record.step is not None), None)


def last_step(records: Sequence[Record[P]]) -> int | None:
    """Return the latest iteration among the records."""
    return next((record.step for record in reversed(records) if record.step is not None), None)


def reaches(records: Sequence[Record[P]], step: int) -> bool:
    """Whether records go to an iteration, or further."""
    last = last_step(records)
    return last is not None and last >= step


def dump(format_: Format[P], head: Any, records: Iterable[Record[P]]) -> bytes:
    """Return the bytes of a whole file."""
    parts = [format_.render(head, record.payload) for record in records]
    return b"".join([format_.opening(head), *parts])

"""Formats of row files: records, and the Protocol that turns results into bytes and back.

A file is an opening and records; a record holds one result and its step. If a step occurs twice,
the later record counts, and everything from the first up to it is superseded, so that a file holds
every step once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from holdfast.core.checkpoint.retention import score_of
from holdfast.tune.result import TRAINING_ITERATION

P = TypeVar("P")
# The number of the result within its trial, which identifies rows; written to those rows whose
# training iteration, which users may set, is a different number.
STEP = "holdfast_step"


class Record(NamedTuple, Generic[P]):
    """One entry of a file; `step` is that of its result, None if it belongs to no result."""

    step: int | None
    payload: P


@dataclass(frozen=True, slots=True)
class Content(Generic[P]):
    """The content of a file.

    Attributes:
        head: What the format needs about the whole file to render a record.
        records: All whole records, in order.
    """

    head: Any
    records: list[Record[P]]


class Format(Protocol[P]):
    """Turns results into bytes, and back."""

    def prepare(self, row: Mapping[str, Any]) -> P:
        """Return what is written of a result; later changes to the result do not affect it."""
        ...

    def load(self, data: bytes) -> Content[P]:
        """Return what is whole in the bytes of a file, however damaged they are."""
        ...

    def grown(self, head: Any, payloads: Iterable[P]) -> Any:
        """Return the head of a file once these are added: the same object if it need not grow."""
        ...

    def opening(self, head: Any) -> bytes:
        """Return the bytes that come before the first record."""
        ...

    def render(self, head: Any, payload: P) -> bytes:
        """Return the bytes of one record."""
        ...


def step_of(row: Mapping[str, Any]) -> int | None:
    """Return the step of a result, None if it has none."""
    if type(step := row.get(STEP)) is int:
        return step
    if type(step := row.get(TRAINING_ITERATION)) is int:
        return step
    iteration = score_of(row, TRAINING_ITERATION)
    try:
        return None if iteration is None else int(iteration)
    except (ValueError, OverflowError):  # NaN, infinity
        return None


def record_of(format_: Format[P], row: Mapping[str, Any]) -> Record[P]:
    """Return the record of a result."""
    return Record(step_of(row), format_.prepare(row))


def each_once(records: Sequence[Record[P]]) -> list[Record[P]]:
    """Return the records that count: the last of each step, and none that is superseded."""
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
    """Return the records up to `step`."""
    return [record for record in records if record.step is None or record.step <= step]


def first_step(records: Iterable[Record[P]]) -> int | None:
    """Return the step of the first record that has one."""
    return next((record.step for record in records if record.step is not None), None)


def last_step(records: Sequence[Record[P]]) -> int | None:
    """Return the step of the last record that has one."""
    return next((record.step for record in reversed(records) if record.step is not None), None)


def reaches(records: Sequence[Record[P]], step: int) -> bool:
    """Whether records go up to `step` or further."""
    last = last_step(records)
    return last is not None and last >= step


def dump(format_: Format[P], head: Any, records: Iterable[Record[P]]) -> bytes:
    """Return the bytes of a whole file."""
    parts = [format_.render(head, record.payload) for record in records]
    return b"".join([format_.opening(head), *parts])

"""Reading the metrics of a run back: every step once, and an account of what cannot be read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.control.metrics.writer import FORMAT, METRICS
from holdfast.core.checkpoint.record import Kept
from holdfast.core.metric_history import Begin, Row, history_of, rows_of
from holdfast.errors import Damaged, FormatTooNew, ObjectMissing
from holdfast.storage.base import Store
from holdfast.storage.parallel import each
from holdfast.storage.records import MARK, is_whole, salvage, unmarked

READ_THREADS = 16
_NAME = re.compile(rf"{re.escape(METRICS)}/((\d{{6,}})-(\d{{6,}}))\.jsonl")


@dataclass(frozen=True, slots=True)
class History:
    """The metrics of a run.

    Attributes:
        rows: Every step once, in order.
        damages: What is not as it was written, one line each; the rows it held are missing.
        torn: How many segments end in a write that was cut off, which nobody had relied on.
    """

    rows: list[Row]
    damages: list[str]
    torn: int


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of a history: its last row, None if it has none, and the last attempt in it."""

    row: Row | None
    attempt: int


def read_metric_rows(
    store: Store, checkpoints: Iterable[Kept] = (), *, until_attempt: int | None = None
) -> History:
    """Return the metrics of the run in `store`; safe beside a live driver.

    The rows that `checkpoints` carry stand in for appended ones that a crash has lost. With
    `until_attempt` it is the history as it was before any later attempt. Raises `FormatTooNew` if a
    newer version wrote the rows.
    """
    threads = 1 if store.local is not None else READ_THREADS
    found = each(lambda key: _read_segment(store, key), _segment_keys(store), threads)
    rows, begins = _gathered(found, checkpoints)
    if until_attempt is not None:
        rows = [row for row in rows if row.attempt <= until_attempt]
        begins = [begun for begun in begins if begun.begin <= until_attempt]
    return History(
        history_of(rows, begins),
        [what for segment in found for what in segment.damages],
        sum(segment.is_torn for segment in found),
    )


def read_latest(store: Store, checkpoints: Iterable[Kept] = ()) -> Latest:
    """Return the end of what `read_metric_rows` returns.

    Reads from the end and no more than it takes: drivers, attempts and steps follow each other, so
    no segment before one with a row that counts has a later step.
    """
    read: list[_Segment] = []
    for key in reversed(_segment_keys(store)):
        read.insert(0, _read_segment(store, key))
        if history_of(*_gathered(read, ())):
            break
    rows, begins = _gathered(read, checkpoints)
    history = history_of(rows, begins)
    attempts = [*(row.attempt for row in rows), *(begun.begin for begun in begins)]
    return Latest(history[-1] if history else None, max(attempts, default=0))


def _gathered(
    segments: Iterable[_Segment], checkpoints: Iterable[Kept]
) -> tuple[list[Row], list[Begin]]:
    rows, begins = list[Row](), list[Begin]()
    for segment in segments:
        rows += segment.rows
        begins += segment.begins
    rows += rows_of(checkpoints)
    return rows, begins


def _segment_keys(store: Store) -> list[str]:
    """Return the segments there are, in the order they were begun."""
    named = (_NAME.fullmatch(entry.key) for entry in store.entries(METRICS))
    found = [(int(name[2]), int(name[3]), name[0]) for name in named if name is not None]
    return [key for _, _, key in sorted(found)]


# ---------------------------------------------------------------------- one segment


@dataclass(slots=True)
class _Segment:
    rows: list[Row] = field(default_factory=list)
    begins: list[Begin] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)
    is_torn: bool = False


_UNREADABLE = (msgspec.DecodeError, Damaged, RecursionError, TypeError, ValueError)
_decode_row = msgspec.json.Decoder(Row).decode
_decode_begin = msgspec.json.Decoder(Begin).decode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode


def _read_segment(store: Store, key: str) -> _Segment:
    found = _Segment()
    try:
        data = store.get(key).data
    except ObjectMissing:
        return found  # deleted since it was listed
    try:
        _read_lines(data, found)
    except FormatTooNew as error:
        raise FormatTooNew(f"{store.url}/{key}: {error.message}", hint=error.hint) from None
    found.damages[:] = [f"{key}, {what}" for what in found.damages]
    return found


def _read_lines(data: bytes, found: _Segment) -> None:
    *lines, tail = data.split(b"\n")
    take, bad = found.rows.append, list[int]()
    for number, line in enumerate(lines):
        if not is_whole(line):
            bad.append(number)
            for whole in salvage(line):  # perhaps only a newline is damaged
                _take(whole, found)
            continue
        try:
            row = _decode_row(line)
            take(_unmarked(row) if MARK in line else row)
        except _UNREADABLE:
            _take_other(line, found)
    found.damages += _damages(lines, bad)
    if tail:
        found.is_torn = True
        for whole in salvage(tail):
            _take(whole, found)


def _damages(lines: Sequence[bytes], bad: Iterable[int]) -> list[str]:
    """Return what to say of damaged lines; those that follow each other are one damage."""
    runs: list[list[int]] = []
    for number in bad:
        if runs and runs[-1][1] == number:
            runs[-1][1] += 1
        else:
            runs.append([number, number + 1])
    said, offset, done = [], 0, 0
    for begin, end in runs:
        offset += sum(map(len, lines[done:begin])) + begin - done
        size = sum(map(len, lines[begin:end])) + end - begin
        said.append(f"byte {offset}: {size} bytes are damaged")
        offset, done = offset + size, end
    return said


def _take(line: bytes, found: _Segment) -> None:
    try:
        found.rows.append(_unmarked(_decode_row(line)))
    except _UNREADABLE:
        _take_other(line, found)


def _take_other(line: bytes, found: _Segment) -> None:
    """Take in a whole line that is no row: the beginning of an attempt, or the header."""
    try:
        found.begins.append(_decode_begin(line))
    except _UNREADABLE:
        version = _format_in(line)
        if version is None:
            found.damages.append("a line is whole, but nobody knows what it says")
        elif version > FORMAT:
            raise FormatTooNew(
                f"metric format {version}, this version reads up to {FORMAT}",
                hint="use the version of Holdfast that wrote it, or a newer one",
            ) from None


def _format_in(line: bytes) -> int | None:
    try:
        version = _decode_any(line).get("format")
    except _UNREADABLE:
        return None
    return version if isinstance(version, int) else None


def _unmarked(row: Row) -> Row:
    return Row(row.step, row.attempt, row.time, unmarked(row.metrics))

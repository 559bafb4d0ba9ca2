"""Reads the metrics of a run: every step once, and a list of what is damaged."""

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
        damages: Descriptions of damaged bytes, one line each; the rows in them are missing.
        torn: How many segments end in a write that was cut off, and so never confirmed.
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

    The rows in `checkpoints` replace appended ones that a crash has lost. With `until_attempt` it
    is the history as it was before any later attempt. Raises `FormatTooNew` if a newer version
    wrote the rows.
    """
    threads = 1 if store.local is not None else READ_THREADS
    segments = each(lambda key: _read_segment(store, key), _segment_keys(store), threads)
    rows, begins = _gathered(segments, checkpoints)
    if until_attempt is not None:
        rows = [row for row in rows if row.attempt <= until_attempt]
        begins = [begun for begun in begins if begun.begin <= until_attempt]
    return History(
        history_of(rows, begins),
        [damage for segment in segments for damage in segment.damages],
        sum(segment.is_torn for segment in segments),
    )


def read_latest(store: Store, checkpoints: Iterable[Kept] = ()) -> Latest:
    """Return the end of what `read_metric_rows` returns.

    Reads segments from the last one back, and no more than needed: drivers, attempts and steps are
    in order, so no segment before one with a row that counts has a later step.
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
    """Return the keys of all segments, in the order in which they were begun."""
    named = (_NAME.fullmatch(entry.key) for entry in store.entries(METRICS))
    numbered = [(int(name[2]), int(name[3]), name[0]) for name in named if name is not None]
    return [key for _, _, key in sorted(numbered)]


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
    segment = _Segment()
    try:
        data = store.get(key).data
    except ObjectMissing:
        return segment  # deleted since it was listed
    try:
        _read_lines(data, segment)
    except FormatTooNew as error:
        raise FormatTooNew(f"{store.url}/{key}: {error.message}", hint=error.hint) from None
    segment.damages[:] = [f"{key}, {damage}" for damage in segment.damages]
    return segment


def _read_lines(data: bytes, segment: _Segment) -> None:
    *lines, tail = data.split(b"\n")
    take, bad = segment.rows.append, list[int]()
    for number, line in enumerate(lines):
        if not is_whole(line):
            bad.append(number)
            for whole in salvage(line):  # perhaps only a newline is damaged
                _take(whole, segment)
            continue
        try:
            row = _decode_row(line)
            take(_unmarked(row) if MARK in line else row)
        except _UNREADABLE:
            _take_other(line, segment)
    segment.damages += _damages(lines, bad)
    if tail:
        segment.is_torn = True
        for whole in salvage(tail):
            _take(whole, segment)


def _damages(lines: Sequence[bytes], bad: Iterable[int]) -> list[str]:
    """Describe damaged lines; adjacent ones are described as one."""
    runs: list[list[int]] = []
    for number in bad:
        if runs and runs[-1][1] == number:
            runs[-1][1] += 1
        else:
            runs.append([number, number + 1])
    damages, offset, done = [], 0, 0
    for begin, end in runs:
        offset += sum(map(len, lines[done:begin])) + begin - done
        size = sum(map(len, lines[begin:end])) + end - begin
        damages.append(f"byte {offset}: {size} bytes are damaged")
        offset, done = offset + size, end
    return damages


def _take(line: bytes, segment: _Segment) -> None:
    try:
        segment.rows.append(_unmarked(_decode_row(line)))
    except _UNREADABLE:
        _take_other(line, segment)


def _take_other(line: bytes, segment: _Segment) -> None:
    """Add a whole line that is no row: the beginning of an attempt, or the header."""
    try:
        segment.begins.append(_decode_begin(line))
    except _UNREADABLE:
        version = _format_in(line)
        if version is None:
            segment.damages.append("a line is whole, but of an unknown kind")
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

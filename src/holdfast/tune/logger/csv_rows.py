r"""`progress.csv`: a line for each result under a header that grows as new metrics appear.

A field is quoted if it holds a comma, a quote or a line break, so that every record ends in `\n`
outside quotes, and one that does not is torn. Every record has a field for each column: what has
another number of them, or a NUL, is damage and is left out.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.core.metric_history import flattened
from holdfast.tune.logger.formats import Content, Record, each_once
from holdfast.tune.logger.plain import encode
from holdfast.tune.result import CONFIG, TRAINING_ITERATION

_SPECIAL = (",", '"', "\n", "\r")


class CsvRows:
    """Payloads are the fields that are not empty, by column; the head is the columns."""

    def prepare(self, row: Mapping[str, Any]) -> dict[str, str]:
        metrics = {name: value for name, value in row.items() if name != CONFIG}
        return {
            str(name): text for name, value in flattened(metrics).items() if (text := _field(value))
        }

    def load(self, data: bytes) -> Content[dict[str, str]]:
        lines = data.split(b"\n")[:-1]  # what comes after the last newline is torn, or nothing
        head: tuple[str, ...] = ()
        records: list[Record[dict[str, str]]] = []
        at = 0
        while at < len(lines):
            end, fields = _fields_from(lines, at)
            if fields is None or not (len(fields) == len(head) if head else _can_be_head(fields)):
                at += 1  # damage; perhaps the next line begins a record again
                continue
            at = end
            if not head:
                head = tuple(fields)
                continue
            payload = {name: text for name, text in zip(head, fields, strict=True) if text}
            records.append(Record(_step_in(payload), payload))
        return Content(head, records)

    def grown(self, head: tuple[str, ...], payloads: Iterable[dict[str, str]]) -> tuple[str, ...]:
        known = set(head or ())
        new: dict[str, None] = {}
        for payload in payloads:
            new.update((name, None) for name in payload if name not in known)
        return (*(head or ()), *new) if new else head

    def opening(self, head: tuple[str, ...]) -> bytes:
        return _line(head) if head else b""

    def render(self, head: tuple[str, ...], payload: dict[str, str]) -> bytes:
        return _line([payload.get(name, "") for name in head])


def rows_in(data: bytes) -> list[dict[str, Any]]:
    """Return the results in the bytes of a `progress.csv`, each iteration once.

    A field is a number if it reads as one.
    """
    records = each_once(CsvRows().load(data.replace(b"\r\n", b"\n")).records)
    return [{name: _value(text) for name, text in one.payload.items()} for one in records]


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.replace("\x00", "").encode(errors="replace").decode()
    if isinstance(value, bool):
        return repr(value)
    if isinstance(value, int | float):  # also those of numpy that are one of these
        return repr(float(value) if isinstance(value, float) else int(value))
    text = encode(value)
    return text[1:-1] if text.startswith('"') else text


def _line(fields: Iterable[str]) -> bytes:
    line = ",".join([_quoted(text) for text in fields])
    return (line or '""').encode() + b"\n"


def _quoted(text: str) -> str:
    if any(one in text for one in _SPECIAL):
        return '"' + text.replace('"', '""') + '"'
    return text


def _fields_from(lines: list[bytes], at: int) -> tuple[int, list[str] | None]:
    """Return where the record that begins at a line ends, and its fields; None if it is none."""
    end, quotes = at, 0
    while end < len(lines):
        quotes += lines[end].count(b'"')
        end += 1
        if quotes % 2 == 0:
            break
    record = b"\n".join(lines[at:end])
    if quotes % 2 or b"\x00" in record or not record:
        return end, None
    try:
        found = list(csv.reader([record.decode()], strict=True))
    except (csv.Error, UnicodeDecodeError):
        return end, None
    return end, found[0] if len(found) == 1 else None


def _can_be_head(fields: list[str]) -> bool:
    """Whether a line can be the header, and not a row whose header was lost."""
    if len(set(fields)) < len(fields):
        return False
    return TRAINING_ITERATION in fields or not any(_is_number(text) for text in fields)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _step_in(payload: Mapping[str, str]) -> int | None:
    try:
        return int(float(payload[TRAINING_ITERATION]))
    except (KeyError, ValueError, OverflowError):
        return None


def _value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

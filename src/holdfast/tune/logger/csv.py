r"""`progress.csv`: the callback that writes it, its format, and its reader.

Each result is a line, under a header that grows as new metrics appear.

A field is quoted if it holds a comma, a quote or a line break, so that every record ends in `\n`
outside quotes; one that does not is torn. Every record has a field for each column: a line with
another number of fields, or with a NUL, is damaged and left out.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from holdfast.tune.logger.formats import STEP, Content, Format, Record, each_once
from holdfast.tune.logger.json_text import encode, flat
from holdfast.tune.logger.logger import FileLogger
from holdfast.tune.result import CONFIG, EXPR_PROGRESS_FILE, TRAINING_ITERATION

_NUMBERS = frozenset({float, int, bool})
_TEXT = frozenset({str})
_PLAIN = _NUMBERS | _TEXT
_special = re.compile(r'[,"\n\r]').search


class CSVLoggerCallback(FileLogger):
    """Writes every result, without its config, as a line of `progress.csv`.

    A nested `b` inside `a` is in the column `a/b`. A metric that appears later gets its own column,
    which is empty in the lines before.
    """

    _file_name = EXPR_PROGRESS_FILE

    def _format(self) -> Format[dict[str, str]]:
        return CsvRows()


class CsvRows:
    """The format: payloads are non-empty fields by column; the head is the columns."""

    def prepare(self, row: Mapping[str, Any]) -> dict[str, Any]:
        filled = {
            name: value for name, value in row.items() if value is not None and name != CONFIG
        }
        if not (_PLAIN.issuperset(map(type, filled.values())) and _TEXT.issuperset(map(type, row))):
            filled = {str(name): _field(value) for name, value in flat(filled).items()}
        if "" in filled.values():
            filled = {name: value for name, value in filled.items() if value != ""}
        return filled

    def load(self, data: bytes) -> Content[dict[str, Any]]:
        lines = data.split(b"\n")[:-1]  # after the last newline is a torn line, or nothing
        head: tuple[str, ...] = ()
        records: list[Record[dict[str, Any]]] = []
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

    def grown(self, head: tuple[str, ...], payloads: Iterable[dict[str, Any]]) -> tuple[str, ...]:
        columns = dict.fromkeys(head or ())
        count = len(columns)
        for payload in payloads:
            if not payload.keys() <= columns.keys():
                columns.update(dict.fromkeys(payload))
        return tuple(columns) if len(columns) > count else head

    def opening(self, head: tuple[str, ...]) -> bytes:
        return _title_line(head) if head else b""

    def render(self, head: tuple[str, ...], payload: dict[str, Any]) -> bytes:
        line = ",".join(
            [
                repr(value) if type(value) in _NUMBERS else _text(value)
                for value in map(payload.get, head)
            ]
        )
        return (line or '""').encode() + b"\n"


def csv_rows(data: bytes) -> list[dict[str, Any]]:
    """Return the results in the bytes of a `progress.csv`, each step once.

    A field is a number if it reads as one.
    """
    records = each_once(CsvRows().load(data.replace(b"\r\n", b"\n")).records)
    return [
        {name: _value(text) for name, text in record.payload.items() if name != STEP}
        for record in records
    ]


def _field(value: Any) -> str:
    if type(value) in _NUMBERS:
        return repr(value)
    if value is None:
        return ""
    if isinstance(value, str):
        if value.isascii() and "\x00" not in value:
            return str(value)
        return value.replace("\x00", "").encode(errors="replace").decode()
    if isinstance(value, bool):
        return repr(value)
    if isinstance(value, int | float):  # such as numpy.float64
        return repr(float(value) if isinstance(value, float) else int(value))
    text = encode(value)
    return text[1:-1] if text.startswith('"') else text


@lru_cache(64)
def _title_line(titles: tuple[str, ...]) -> bytes:
    return (",".join(map(_quoted, titles)) or '""').encode() + b"\n"


@lru_cache(4096)
def _text(value: Any) -> str:
    """Return the field of a text; cached, because most texts repeat from row to row."""
    return _quoted(_field(value))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _special(text) else text


def _fields_from(lines: list[bytes], at: int) -> tuple[int, list[str] | None]:
    """Return where the record at a line ends, and its fields or, if it is damaged, None."""
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
        rows = list(csv.reader([record.decode()], strict=True))
    except (csv.Error, UnicodeDecodeError):
        return end, None
    return end, rows[0] if len(rows) == 1 else None


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
        return int(float(payload[STEP if STEP in payload else TRAINING_ITERATION]))
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

"""`result.json`: one JSON object for each result, a line each."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast.storage.shapes import is_too_deep
from holdfast.tune.logger.formats import STEP, Content, Record, each_once, step_of
from holdfast.tune.logger.json_text import encoded


class _Stepped(msgspec.Struct):
    training_iteration: int | None = None
    holdfast_step: int | None = None


_decode_step = msgspec.json.Decoder(_Stepped).decode
_decoder = json.JSONDecoder()


class JsonLines:
    """Payloads are lines without their newline."""

    def prepare(self, row: Mapping[str, Any]) -> bytes:
        return encoded(row)

    def load(self, data: bytes) -> Content[bytes]:
        """Return what is whole; a line that two rows share, for want of a newline, is two."""
        records = []
        for line in data.split(b"\n"):
            if not line:
                continue
            step = _step_in(line)
            if step is not None:
                records.append(Record(step, line))
            else:
                found = _objects(line.strip(b"\x00 \r"))
                records += [Record(step_of(row), part) for part, row in found]
        return Content(None, records)

    def grown(self, head: None, payloads: Iterable[bytes]) -> None:
        return None

    def opening(self, head: None) -> bytes:
        return b""

    def render(self, head: None, payload: bytes) -> bytes:
        return payload + b"\n"


def rows_in(data: bytes) -> list[dict[str, Any]]:
    """Return the results in the bytes of a `result.json`, each step once."""
    records = each_once(JsonLines().load(data).records)
    rows: list[dict[str, Any]] = []
    for one in records:
        with contextlib.suppress(RecursionError):  # nobody can read it
            row = json.loads(one.payload)
            if not is_too_deep(row):
                rows.append(row)
    return [{name: value for name, value in row.items() if name != STEP} for row in rows]


def _step_in(line: bytes) -> int | None:
    """Return the step that a plain line says; None if the line must be looked at closer."""
    try:
        if not line.isascii():
            line.decode()
        found = _Stepped() if b"\x00" in line else _decode_step(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found.training_iteration if found.holdfast_step is None else found.holdfast_step


def _objects(line: bytes) -> list[tuple[bytes, dict[str, Any]]]:
    """Return the whole objects that a line begins with, as they stand there and as data."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return []
    found: list[tuple[bytes, dict[str, Any]]] = []
    at = 0
    while at < len(text):
        try:
            row, end = _decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        if not isinstance(row, dict):
            break
        found.append((text[at:end].encode(), row))
        at = end + (len(text[end:]) - len(text[end:].lstrip()))
    return found

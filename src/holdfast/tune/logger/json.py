"""`result.json`, with a JSON object per line for each result, and `params.json`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.storage.records import is_too_deep
from holdfast.tune.logger.formats import STEP, Content, Format, Record, each_once, step_of
from holdfast.tune.logger.json_text import encoded, encoded_lines
from holdfast.tune.logger.logger import FileLogger, with_config
from holdfast.tune.result import EXPR_PARAM_FILE, EXPR_RESULT_FILE
from holdfast.tune.trial import Trial


class _Stepped(msgspec.Struct):
    training_iteration: int | None = None
    holdfast_step: int | None = None


_decode_step = msgspec.json.Decoder(_Stepped).decode
_decoder = json.JSONDecoder()


class JsonLoggerCallback(FileLogger):
    """Writes every result, with its config, to `result.json`, and the config to `params.json`."""

    _file_name = EXPR_RESULT_FILE

    def _format(self) -> Format[bytes]:
        return JsonLines()

    def _row(self, trial: Trial, result: Mapping[str, Any]) -> Mapping[str, Any]:
        return with_config(trial, result)

    def log_trial_start(self, trial: Trial) -> None:
        """Write the config that the trial has from now on to `params.json`."""
        self.update_config(trial, trial.config)

    def update_config(self, trial: Trial, config: Mapping[str, Any]) -> None:
        """Replace the config in `params.json`."""
        data = encoded_lines(config) + b"\n"
        self._files.put_whole(f"{trial.folder}/{EXPR_PARAM_FILE}", data)

    def reconcile(self, trial: Trial, rows: Sequence[Mapping[str, Any]]) -> None:
        self.update_config(trial, trial.reported_as.config)
        super().reconcile(trial, rows)


class JsonLines:
    """The format: payloads are lines without their newline."""

    def prepare(self, row: Mapping[str, Any]) -> bytes:
        return encoded(row)

    def load(self, data: bytes) -> Content[bytes]:
        """Return what is whole; a line with two rows, whose newline is missing, is split."""
        records = []
        for line in data.split(b"\n"):
            if not line:
                continue
            step = _step_in(line)
            if step is not None:
                records.append(Record(step, line))
            else:
                rows = _objects(line.strip(b"\x00 \r"))
                records += [Record(step_of(row), text) for text, row in rows]
        return Content(None, records)

    def grown(self, head: None, payloads: Iterable[bytes]) -> None:
        return None

    def opening(self, head: None) -> bytes:
        return b""

    def render(self, head: None, payload: bytes) -> bytes:
        return payload + b"\n"


def json_rows(data: bytes) -> list[dict[str, Any]]:
    """Return the results in the bytes of a `result.json`, each step once."""
    records = each_once(JsonLines().load(data).records)
    rows: list[dict[str, Any]] = []
    for record in records:
        with contextlib.suppress(RecursionError):  # deeper than Python's reader goes
            row = json.loads(record.payload)
            if not is_too_deep(row):
                rows.append(row)
    return [{name: value for name, value in row.items() if name != STEP} for row in rows]


def _step_in(line: bytes) -> int | None:
    """Return the step in a line; None if the line needs closer inspection."""
    try:
        if not line.isascii():
            line.decode()
        row = _Stepped() if b"\x00" in line else _decode_step(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return row.training_iteration if row.holdfast_step is None else row.holdfast_step


def _objects(line: bytes) -> list[tuple[bytes, dict[str, Any]]]:
    """Return the whole objects at the start of a line, as text and as data."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return []
    objects: list[tuple[bytes, dict[str, Any]]] = []
    at = 0
    while at < len(text):
        try:
            row, end = _decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        if not isinstance(row, dict):
            break
        objects.append((text[at:end].encode(), row))
        at = end + (len(text[end:]) - len(text[end:].lstrip()))
    return objects

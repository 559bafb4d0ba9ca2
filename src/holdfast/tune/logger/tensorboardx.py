"""TensorBoard's event files: the callback that writes them, and their format.

An event is a protobuf message: wall_time = 1, step = 2, file_version = 3, summary = 5 and
session_log = 7. A summary is a list (1) of values: tag = 1, simple_value = 2, metadata = 9.

Each result is one event. Its values always include the training iteration and, if it differs, the
trial's step, by which a superseded result is found; the event's own `step` may count something
else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from holdfast.core.plain_data import text_of
from holdfast.tune.logger.event_files import (
    double_field,
    fields_in,
    framed,
    frames_in,
    message_field,
    varint,
    varint_field,
)
from holdfast.tune.logger.formats import STEP, Content, Format, Record
from holdfast.tune.logger.json_text import flat, number_of
from holdfast.tune.logger.logger import FileLogger
from holdfast.tune.result import CONFIG, PID, TIMESTAMP, TIMESTEPS_TOTAL, TRAINING_ITERATION
from holdfast.tune.trial import Trial

PREFIX = "ray/tune/"
_ITERATION_TAG = (PREFIX + TRAINING_ITERATION).encode()
_STEP_TAG = (PREFIX + STEP).encode()
_LEFT_OUT = frozenset({CONFIG, PID, TIMESTAMP})
_pack_float = struct.Struct("<f").pack


class TBXLoggerCallback(FileLogger):
    """Writes the numbers of every result to an event file, `ray/tune/<metric>`, for TensorBoard.

    The step is `timesteps_total` where it is reported, else `training_iteration`. When results are
    superseded, a new file replaces the one before, and a running TensorBoard reloads the trial. The
    trial's parameters are on TensorBoard's page of hyperparameters.

    Args:
        hparams: Whether that page gets the trial's parameters.
    """

    _file_name = "the event files of TensorBoard"
    _numbered = "events.out.tfevents.{:010d}.holdfast"

    def __init__(self, *, hparams: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self._has_hparams = hparams

    def _format(self) -> Format[bytes]:
        return Events()

    def _row(self, trial: Trial, result: Mapping[str, Any]) -> Mapping[str, Any]:
        return result if TIMESTAMP in result else {**result, TIMESTAMP: self._clock.now()}

    def log_trial_start(self, trial: Trial) -> None:
        """Put the trial's parameters first in its file."""
        parameters = self._parameters(trial)
        if parameters is not None:
            self._files.add_first(trial.folder, parameters)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if not self._files.knows(trial.folder):
            # An earlier driver may have died before it wrote anything to the file.
            self.log_trial_start(trial)
        super().log_trial_result(iteration, trial, result)

    def reconcile(self, trial: Trial, rows: Sequence[Mapping[str, Any]]) -> None:
        self._reconcile(trial, rows, self._parameters(trial))

    def _parameters(self, trial: Trial) -> bytes | None:
        if not self._has_hparams or not trial.evaluated_params:
            return None
        began = trial.started_at if trial.started_at is not None else self._clock.now()
        return hyperparameters(trial.evaluated_params, str(trial), began)


class Events:
    """The format: payloads are frames, and every file opens alike."""

    def prepare(self, row: Mapping[str, Any]) -> bytes:
        step = number_of(row[TIMESTEPS_TOTAL]) if TIMESTEPS_TOTAL in row else None
        if step is None:
            step = number_of(row.get(TRAINING_ITERATION))
        values: list[bytes] = []
        for name, value in flat(row, without=CONFIG).items():
            number = value if type(value) is float else number_of(value)
            if number is not None and _is_written(name):
                values += (_value_start(name), _packed(number))
        wall_time = number_of(row.get(TIMESTAMP)) or 0.0
        return event(wall_time, _whole(step), message_field(5, *values))

    def load(self, data: bytes) -> Content[bytes]:
        """Return the events before the first damaged one, after which no frame can be found."""
        frames = [Record(_step_in(body), frame) for frame, body in frames_in(data)]
        opening = self.opening(None)
        first = 0
        while first < len(frames) and opening.startswith(
            b"".join(record.payload for record in frames[: first + 1])
        ):
            first += 1
        return Content(None, frames[first:])

    def grown(self, head: None, payloads: Iterable[bytes]) -> None:
        return None

    def opening(self, head: None) -> bytes:
        return _opening()

    def render(self, head: None, payload: bytes) -> bytes:
        return payload


def event(wall_time: float, step: int, content: bytes) -> bytes:
    """Return the frame of one event."""
    return framed(double_field(1, wall_time) + varint_field(2, step) + content)


def hyperparameters(values: Mapping[str, Any], session: str, wall_time: float) -> bytes:
    """Return the event that TensorBoard's page of hyperparameters reads.

    `session` names the trial. Other values than numbers, texts and flags are written as text.
    """
    start = [
        message_field(1, _constant_field(1, str(name)), message_field(2, _variant(value)))
        for name, value in flat(values).items()
    ]
    start += [_text_field(4, session), double_field(5, wall_time)]
    plugin = message_field(2, varint_field(1, 0), message_field(3, *start))
    metadata = message_field(9, message_field(1, _constant_field(1, "hparams"), plugin))
    tag = _constant_field(1, "_hparams_/session_start_info")
    return event(wall_time, 0, message_field(5, message_field(1, tag, metadata)))


def _variant(value: object) -> bytes:
    """Return a parameter as a field of protobuf's `Value`."""
    if isinstance(value, bool):
        return varint_field(4, int(value))
    number = number_of(value)
    return _text_field(3, text_of(value)) if number is None else double_field(2, number)


@cache
def _opening() -> bytes:
    # The second event makes readers discard what they read from a file that this one replaces.
    version = event(0.0, 0, _text_field(3, "brain.Event:2"))
    return version + event(0.0, 0, message_field(7, varint_field(1, 1)))


@lru_cache(4096)
def _value_start(name: object) -> bytes:
    """Return the bytes of a metric's value up to its number; the same in every event."""
    tag = _text_field(1, f"{PREFIX}{name}")
    return varint(1 << 3 | 2) + varint(len(tag) + 5) + tag + varint(2 << 3 | 5)


@lru_cache(4096)
def _is_written(name: object) -> bool:
    return str(name).partition("/")[0] not in _LEFT_OUT


def _text_field(number: int, text: str) -> bytes:
    return message_field(number, text.encode(errors="replace"))


_constant_field = lru_cache(4096)(_text_field)  # for texts that every trial has


def _packed(number: float) -> bytes:
    try:
        return _pack_float(number)
    except OverflowError:  # beyond the range of TensorBoard's numbers
        return _pack_float(float("inf") if number > 0 else float("-inf"))


def _whole(value: float | None) -> int:
    try:
        return int(value or 0)
    except (ValueError, OverflowError):
        return 0


def _step_in(body: bytes) -> int | None:
    """Return the trial's step among the values of an event, or else its training iteration."""
    iteration = None
    for number, summary in fields_in(body):
        if number == 5 and isinstance(summary, bytes):
            for _, value in fields_in(summary):
                if isinstance(value, bytes) and (_ITERATION_TAG in value or _STEP_TAG in value):
                    fields = dict(fields_in(value))
                    if isinstance(data := fields.get(2), bytes):
                        counted = _whole(struct.unpack("<f", data)[0])
                        if fields.get(1) == _STEP_TAG:
                            return counted
                        iteration = counted if fields.get(1) == _ITERATION_TAG else iteration
    return iteration

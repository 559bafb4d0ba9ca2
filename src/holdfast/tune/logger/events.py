"""TensorBoard's event files, written by hand: frames around small messages.

The data of a frame is a message `Event` of protocol buffers: wall_time = 1, step = 2,
file_version = 3, summary = 5 and session_log = 7. A summary is a list (1) of values: tag = 1,
simple_value = 2, metadata = 9.

Each result is one event. Among its values is always its training iteration, and the step of its
trial if that is another number, by which it is found again when results are superseded; `step` may
count something else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any

from holdfast.tune.logger.formats import STEP, Content, Record
from holdfast.tune.logger.frames import Shape, framed, frames_in
from holdfast.tune.logger.json_text import flat, number_of, text_of
from holdfast.tune.logger.messages import (
    double_field,
    fields_in,
    message_field,
    varint,
    varint_field,
)
from holdfast.tune.result import CONFIG, PID, TIMESTAMP, TIMESTEPS_TOTAL, TRAINING_ITERATION

PREFIX = "ray/tune/"
_ITERATION_TAG = (PREFIX + TRAINING_ITERATION).encode()
_STEP_TAG = (PREFIX + STEP).encode()
_LEFT_OUT = frozenset({CONFIG, PID, TIMESTAMP})
_PLAIN = frozenset({float, int, bool, str, type(None)})
_FLOAT_MAX = 3.4028234663852886e38
_pack_double = struct.Struct("<d").pack


class Events:
    """Payloads are frames; the head is nothing, for every file opens alike."""

    def prepare(self, row: Mapping[str, Any]) -> bytes:
        step = number_of(row[TIMESTEPS_TOTAL]) if TIMESTEPS_TOTAL in row else None
        if step is None:
            step = number_of(row.get(TRAINING_ITERATION))
        when = varint(_whole(step))
        before = _pack_double(number_of(row.get(TIMESTAMP)) or 0.0) + when
        names, take = _numbers_among((*row,), (*map(type, row.values()),))
        if take is not None:
            return _shape_of_result(names, len(when)).frame(before + _floats(take(row)))
        told = flat(row, without=CONFIG).items()
        found = {name: number_of(value) for name, value in told if _is_told(name)}
        numbers = {name: value for name, value in found.items() if value is not None}
        shape = _shape_of_result((*numbers,), len(when))
        return shape.frame(before + _floats((*numbers.values(),)))

    def load(self, data: bytes) -> Content[bytes]:
        """Return the events before the first that is not whole; where others begin is unknown."""
        frames = [Record(_step_in(body), frame) for frame, body in frames_in(data)]
        opening = self.opening(None)
        begins = 0
        while begins < len(frames) and opening.startswith(
            b"".join(one.payload for one in frames[: begins + 1])
        ):
            begins += 1
        return Content(None, frames[begins:])

    def grown(self, head: None, payloads: Iterable[bytes]) -> None:
        return None

    def opening(self, head: None) -> bytes:
        return _opening()

    def render(self, head: None, payload: bytes) -> bytes:
        return payload


def hyperparameters(values: Mapping[str, Any], session: str, wall_time: float) -> bytes:
    """Return the event that TensorBoard's page of hyperparameters reads.

    `session` names the trial. What is neither a number, a text nor a flag is told as text.
    """
    told = flat(values)
    kinds: list[int] = []
    when, name = _pack_double(wall_time), session.encode(errors="replace")
    different = [when]
    for value in told.values():
        if isinstance(value, bool):
            kinds.append(_YES if value else _NO)
            continue
        number = number_of(value)
        data = text_of(value).encode(errors="replace") if number is None else _pack_double(number)
        kinds.append(len(data) if number is None else _NUMBER)
        different.append(data)
    shape = _shape_of_parameters(tuple(map(str, told)), tuple(kinds), len(name))
    return shape.frame(b"".join((*different, name, when)))


@cache
def _opening() -> bytes:
    # The second one says that whatever was read before, from a file that this one takes the place
    # of, no longer counts.
    version = event(0.0, 0, message_field(3, b"brain.Event:2"))
    return version + event(0.0, 0, message_field(7, varint_field(1, 1)))


def event(wall_time: float, step: int, what: bytes) -> bytes:
    """Return the frame of one event."""
    return framed(double_field(1, wall_time) + varint_field(2, step) + what)


# ---------------------------------------------------------------------- results


@lru_cache(256)
def _numbers_among(
    names: tuple[Any, ...], kinds: tuple[type, ...]
) -> tuple[tuple[Any, ...], Callable[[Mapping[Any, Any]], Sequence[float]] | None]:
    """Return which metrics of a result are told, and what takes them out of it.

    None for that if there are other kinds of values than plain ones, which need a closer look.
    """
    known = [(name, kind) for name, kind in zip(names, kinds, strict=True) if name != CONFIG]
    if not _PLAIN.issuperset(kind for _, kind in known):
        return (), None
    told = tuple(name for name, kind in known if kind in (float, int) and _is_told(name))
    if len(told) < 2:  # of one, it would not return a sequence
        return told, lambda row: [row[name] for name in told]
    return told, itemgetter(*told)


@lru_cache(256)
def _shape_of_result(names: tuple[Any, ...], step_size: int) -> Shape:
    """Return the shape of results that have these numbers."""
    befores = [_before_number(name) for name in names]
    size = sum(map(len, befores)) + 4 * len(befores)
    values = [part for before in befores for part in (before, 4)]
    return Shape(b"\x09", 8, b"\x10", step_size, b"\x2a" + varint(size), *values)


@lru_cache(4096)
def _before_number(name: object) -> bytes:
    """Return a value's bytes up to its number: they are the same in every event."""
    tag = message_field(1, f"{PREFIX}{name}".encode(errors="replace"))
    return varint(10) + varint(len(tag) + 5) + tag + b"\x15"


@lru_cache(4096)
def _is_told(name: object) -> bool:
    return str(name).partition("/")[0] not in _LEFT_OUT


def _floats(numbers: Sequence[float]) -> bytes:
    try:
        return struct.pack(f"<{len(numbers)}f", *numbers)
    except OverflowError:  # beyond what TensorBoard's numbers reach
        return b"".join([struct.pack("<f", _within_reach(number)) for number in numbers])


def _within_reach(number: float) -> float:
    if abs(number) <= _FLOAT_MAX:
        return number
    return float("inf") if number > 0 else float("-inf")


def _whole(value: float | None) -> int:
    try:
        return int(value or 0)
    except (ValueError, OverflowError):
        return 0


def _step_in(body: bytes) -> int | None:
    """Return the step among the values of an event, or else the training iteration."""
    iteration = None
    for number, summary in fields_in(body):
        if number == 5 and isinstance(summary, bytes):
            for _, value in fields_in(summary):
                if isinstance(value, bytes) and (_ITERATION_TAG in value or _STEP_TAG in value):
                    found = dict(fields_in(value))
                    if isinstance(data := found.get(2), bytes):
                        counted = _whole(struct.unpack("<f", data)[0])
                        if found.get(1) == _STEP_TAG:
                            return counted
                        iteration = counted if found.get(1) == _ITERATION_TAG else iteration
    return iteration


# ---------------------------------------------------------------------- parameters

_NUMBER, _NO, _YES = -1, -2, -3  # kinds of values; texts have their size


@lru_cache(256)
def _shape_of_parameters(
    names: tuple[str, ...], kinds: tuple[int, ...], session_size: int
) -> Shape:
    """Return the shape of events with these parameters, of the trial that has a name so long."""
    start: list[bytes | int] = []
    for name, kind in zip(names, kinds, strict=True):
        key = message_field(1, name.encode(errors="replace"))
        start += _nested(1, key, *_nested(2, *_variant(kind)))
    start += [*_nested(4, session_size), varint(5 << 3 | 1), 8]
    plugin = [varint_field(1, 0), *_nested(3, *start)]
    metadata = _nested(1, message_field(1, b"hparams"), *_nested(2, *plugin))
    tag = message_field(1, b"_hparams_/session_start_info")
    summary = _nested(5, *_nested(1, tag, *_nested(9, *metadata)))
    return Shape(b"\x09", 8, varint_field(2, 0), *summary)


def _nested(number: int, *parts: bytes | int) -> list[bytes | int]:
    """Return the parts of a field whose message has these."""
    size = sum(part if isinstance(part, int) else len(part) for part in parts)
    return [varint(number << 3 | 2) + varint(size), *parts]


def _variant(kind: int) -> list[bytes | int]:
    if kind == _NUMBER:
        return [varint(2 << 3 | 1), 8]
    return [varint_field(4, int(kind == _YES))] if kind < 0 else _nested(3, kind)

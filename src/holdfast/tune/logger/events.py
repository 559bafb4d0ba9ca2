"""TensorBoard's event files, written by hand: frames with checksums around small messages.

A frame is the length of its data (8 bytes, little endian), a checksum of these, the data, and a
checksum of the data; checksums are CRC-32C, rotated and shifted by a constant. The data is a
message `Event` of protocol buffers: wall_time = 1, step = 2, file_version = 3, summary = 5 and
session_log = 7. A summary is a list (1) of values: tag = 1, simple_value = 2, metadata = 9.

Each result is one event. Among its values is always its training iteration, by which it is found
again when results are superseded; `step` may count something else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from holdfast.core.metric_history import flattened
from holdfast.tune.logger.formats import Content, Record
from holdfast.tune.logger.plain import number_of
from holdfast.tune.result import CONFIG, PID, TIMESTAMP, TIMESTEPS_TOTAL, TRAINING_ITERATION

PREFIX = "ray/tune/"
_ITERATION_TAG = (PREFIX + TRAINING_ITERATION).encode()
_LEFT_OUT = frozenset({CONFIG, PID, TIMESTAMP})
_FLOAT_MAX = 3.4028234663852886e38


class Events:
    """Payloads are frames; the head is nothing, for every file opens alike."""

    def prepare(self, row: Mapping[str, Any]) -> bytes:
        iteration = number_of(row.get(TRAINING_ITERATION))
        steps = number_of(row.get(TIMESTEPS_TOTAL))
        step = steps if steps is not None else iteration
        values = [
            _scalar(PREFIX + str(name), number)
            for name, value in flattened(row).items()
            if str(name).partition("/")[0] not in _LEFT_OUT
            and (number := number_of(value)) is not None
        ]
        wall_time = number_of(row.get(TIMESTAMP)) or 0.0
        return event(wall_time, _whole(step), _message(5, b"".join(values)))

    def load(self, data: bytes) -> Content[bytes]:
        """Return the events before the first that is not whole; where others begin is unknown."""
        frames = [Record(_iteration_in(body), frame) for frame, body in frames_in(data)]
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
    entries = b"".join(
        _message(1, _message(1, str(name).encode()) + _message(2, _variant(value)))
        for name, value in flattened(values).items()
    )
    start = entries + _message(4, session.encode()) + _double(5, wall_time)
    plugin_data = _varint_field(1, 0) + _message(3, start)
    metadata = _message(1, _message(1, b"hparams") + _message(2, plugin_data))
    value = _message(1, b"_hparams_/session_start_info") + _message(9, metadata)
    return event(wall_time, 0, _message(5, _message(1, value)))


@cache
def _opening() -> bytes:
    # The second one says that whatever was read before, from a file that this one takes the place
    # of, no longer counts.
    version = event(0.0, 0, _message(3, b"brain.Event:2"))
    return version + event(0.0, 0, _message(7, _varint_field(1, 1)))


def event(wall_time: float, step: int, what: bytes) -> bytes:
    """Return the frame of one event."""
    return framed(_double(1, wall_time) + _varint_field(2, step) + what)


# ---------------------------------------------------------------------- frames


def framed(data: bytes) -> bytes:
    """Return data with its length and checksums around it."""
    length = struct.pack("<Q", len(data))
    return b"".join(
        (length, struct.pack("<I", _masked(length)), data, struct.pack("<I", _masked(data)))
    )


def frames_in(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each frame with the data in it, up to the first that is not whole."""
    at = 0
    while at + 12 <= len(data):
        length, checksum = struct.unpack_from("<QI", data, at)
        end = at + 12 + length + 4
        if _masked(data[at : at + 8]) != checksum or end > len(data):
            return
        body = data[at + 12 : end - 4]
        if struct.unpack_from("<I", data, end - 4)[0] != _masked(body):
            return
        yield data[at:end], body
        at = end


def _masked(data: bytes) -> int:
    found = crc32c(data)
    return ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of data."""
    table, found = _table(), 0xFFFFFFFF
    for byte in data:
        found = table[(found ^ byte) & 0xFF] ^ (found >> 8)
    return found ^ 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    entries = []
    for entry in range(256):
        for _ in range(8):
            entry = entry >> 1 ^ 0x82F63B78 if entry & 1 else entry >> 1  # noqa: PLW2901
        entries.append(entry)
    return tuple(entries)


# ---------------------------------------------------------------------- messages


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF  # negative numbers are as long as can be
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _varint_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _message(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _scalar(tag: str, value: float) -> bytes:
    if abs(value) > _FLOAT_MAX:  # beyond what TensorBoard's numbers reach
        value = float("inf") if value > 0 else float("-inf")
    return _before_number(tag) + struct.pack("<f", value)


@lru_cache(4096)
def _before_number(tag: str) -> bytes:
    """Return a value's bytes up to its number: they are the same in every event."""
    name = _message(1, tag.encode(errors="replace"))
    return _varint(10) + _varint(len(name) + 5) + name + b"\x15"


def _variant(value: object) -> bytes:
    if isinstance(value, bool):
        return _varint_field(4, int(value))
    number = number_of(value)
    return _double(2, number) if number is not None else _message(3, str(value).encode())


def _whole(value: float | None) -> int:
    try:
        return int(value or 0)
    except (ValueError, OverflowError):
        return 0


def _iteration_in(body: bytes) -> int | None:
    """Return the training iteration among the values of an event."""
    for number, summary in _fields(body):
        if number == 5 and isinstance(summary, bytes):
            for _, value in _fields(summary):
                if isinstance(value, bytes) and _ITERATION_TAG in value:
                    found = dict(_fields(value))
                    if found.get(1) == _ITERATION_TAG and isinstance(found.get(2), bytes):
                        return _whole(struct.unpack("<f", found[2])[0])  # type: ignore[arg-type]
    return None


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield the fields of a message, numbers of fixed size as their bytes."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        match key & 7:
            case 0:
                value, at = _read_varint(data, at)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 5:
                size = 4
            case 2:
                size, at = _read_varint(data, at)
            case _:
                return
        yield key >> 3, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, at

"""A reader of TensorBoard's event files that shares nothing with the code that writes them.

Written from the definitions of TFRecord and of the messages; checksums are computed bit by bit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache


@dataclass
class Seen:
    """One event."""

    wall_time: float = 0.0
    step: int = 0
    file_version: str | None = None
    session_status: int | None = None
    scalars: dict[str, float] = field(default_factory=dict)
    plugins: dict[str, tuple[str, bytes]] = field(default_factory=dict)


@cache
def crc(data: bytes) -> int:
    """The checksum by its definition: polynomial 0x1EDC6F41, reflected, all ones in and out."""
    register = 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            mixed = (register ^ (byte >> bit)) & 1
            register >>= 1
            if mixed:
                register ^= 0x82F63B78
    return register ^ 0xFFFFFFFF


def unmasked(masked: int) -> int:
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF


def read_events(data: bytes) -> list[Seen]:
    """Return all events; every byte must belong to a frame whose checksums are right."""
    events, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        assert unmasked(int.from_bytes(data[at + 8 : at + 12], "little")) == crc(data[at : at + 8])
        body = data[at + 12 : at + 12 + length]
        assert len(body) == length, "the last frame is cut short"
        tail = data[at + 12 + length : at + 16 + length]
        assert unmasked(int.from_bytes(tail, "little")) == crc(body)
        events.append(read_event(body))
        at += 16 + length
    return events


def read_event(body: bytes) -> Seen:
    seen = Seen()
    for number, wire, value in fields(body):
        if (number, wire) == (1, 1):
            (seen.wall_time,) = struct.unpack("<d", value)
        elif (number, wire) == (2, 0):
            seen.step = int.from_bytes(value, "little")
        elif (number, wire) == (3, 2):
            seen.file_version = value.decode()
        elif (number, wire) == (7, 2):
            ((_, _, status),) = fields(value)
            seen.session_status = int.from_bytes(status, "little")
        else:
            assert (number, wire) == (5, 2), f"field {number} of an event"
            read_summary(value, seen)
    return seen


def read_summary(data: bytes, seen: Seen) -> None:
    for number, wire, value in fields(data):
        assert (number, wire) == (1, 2)
        parts = {inner: content for inner, _, content in fields(value)}
        tag = parts[1].decode()
        if 2 in parts:
            (seen.scalars[tag],) = struct.unpack("<f", parts[2])
        if 9 in parts:
            plugin = {n: v for n, _, v in fields(dict(nv(parts[9]))[1])}
            seen.plugins[tag] = (plugin[1].decode(), plugin[2])


def nv(data: bytes) -> Iterator[tuple[int, bytes]]:
    return ((number, value) for number, _, value in fields(data))


def fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, wire type and content of each field; varints as 8 little-endian bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(data, at)
            yield number, wire, value.to_bytes(8, "little")
            continue
        if wire == 2:
            size, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}[wire]
        assert at + size <= len(data)
        yield number, wire, data[at : at + size]
        at += size


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at

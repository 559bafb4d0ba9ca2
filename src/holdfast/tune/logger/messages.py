"""Protocol buffers by hand: the few kinds of fields that TensorBoard's events are made of."""

from __future__ import annotations

import struct
from collections.abc import Iterator


def varint(value: int) -> bytes:
    """Return a whole number; negative ones are as long as can be."""
    value &= 0xFFFFFFFFFFFFFFFF
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def varint_field(number: int, value: int) -> bytes:
    """Return a field that is a whole number."""
    return varint(number << 3) + varint(value)


def double_field(number: int, value: float) -> bytes:
    """Return a field that is a number of 8 bytes."""
    return varint(number << 3 | 1) + struct.pack("<d", value)


def message_field(number: int, data: bytes) -> bytes:
    """Return a field that is a text, or another message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields_in(data: bytes) -> Iterator[tuple[int, bytes | int]]:
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
            case 2:
                size, at = _read_varint(data, at)
            case 5:
                size = 4
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

"""The binary layer of TensorBoard's event files: frames with checksums, and protobuf fields.

A frame is the length of its data (8 bytes, little endian), a checksum of the length, the data, and
a checksum of the data; checksums are CRC-32C, rotated and shifted by a constant. The data is a
protobuf message; only the kinds of fields that events use are supported.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from functools import cache, lru_cache

# ---------------------------------------------------------------------- frames


def framed(data: bytes) -> bytes:
    """Return data with its length and checksums around it."""
    return b"".join((_frame_start(len(data)), data, _masked_crc(data)))


def frames_in(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each frame and its data, up to the first that is not whole."""
    start = 0
    while start + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        end = start + 12 + length + 4
        if end > len(data) or data[start : start + 12] != _frame_start(length):
            return
        body = data[start + 12 : end - 4]
        if data[end - 4 : end] != _masked_crc(body):
            return
        yield data[start:end], body
        start = end


@lru_cache(4096)
def _frame_start(size: int) -> bytes:
    """Return the bytes before data of this size."""
    length = struct.pack("<Q", size)
    return length + _masked_crc(length)


def _masked_crc(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of data, computed four bytes at a time."""
    low, high = _crc_tables()
    crc = 0xFFFFFFFF
    words = len(data) // 4
    for word in struct.unpack_from(f"<{words}I", data):
        crc ^= word
        crc = low[crc & 0xFFFF] ^ high[crc >> 16]
    for byte in data[4 * words :]:
        crc = high[((crc ^ byte) & 0xFF) << 8] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@cache
def _crc_tables() -> tuple[array[int], array[int]]:
    """Return the remainders of every value of the low and of the high half of a 32-bit word."""
    halves = []
    for first_bit in (0, 16):
        remainders = [0]
        for bit in range(first_bit, first_bit + 16):
            remainder = 1 << bit
            for _ in range(32):
                remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
            remainders += [lower ^ remainder for lower in remainders]
        halves.append(array("I", remainders))
    return halves[0], halves[1]


# ---------------------------------------------------------------------- protobuf fields


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]  # nearly all varints are so small


def varint(value: int) -> bytes:
    """Return an integer as a varint; a negative one takes ten bytes."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    value &= 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint_field(number: int, value: int) -> bytes:
    """Return a field that is an integer."""
    return varint(number << 3) + varint(value)


def double_field(number: int, value: float) -> bytes:
    """Return a field that is a double."""
    return varint(number << 3 | 1) + struct.pack("<d", value)


def message_field(number: int, *parts: bytes) -> bytes:
    """Return a field that is a string, or a message of these fields."""
    data = b"".join(parts)
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields_in(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield the fields of a message; numbers of fixed size stay bytes."""
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

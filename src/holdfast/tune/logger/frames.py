"""Frames as TensorBoard's files have them: data with its length and checksums around it.

A frame is the length of its data (8 bytes, little endian), a checksum of these, the data, and a
checksum of the data; checksums are CRC-32C, rotated and shifted by a constant.

Python is slow at checksums, and the frames of a study are much alike. A `Shape` knows the checksum
of all that is the same in them, and adds to it what each byte that differs changes.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache, reduce
from itertools import accumulate, pairwise
from operator import getitem, xor

BEFORE_BYTES = 12
DIFFERENT_MAX = 1024  # bytes; where more differ, or data is longer, checksums are made anew
SIZE_MAX = 64 << 10
_TABLES_MAX = 4096  # a KiB each
_pack_checksum = struct.Struct("<I").pack


class Shape:
    """Frames that have the same bytes except in some places, which all have the same sizes.

    Args:
        parts: The bytes that are the same, and the sizes of what is not, as they come.
    """

    def __init__(self, *parts: bytes | int) -> None:
        same, sizes = [b""], []
        for part in parts:
            if isinstance(part, int):
                sizes.append(part)
                same.append(b"")
            else:
                same[-1] += part
        places = list(accumulate(sizes, initial=0))
        self._slices = [slice(*ends) for ends in pairwise(places)]
        zeros = b"".join(bytes(part) if isinstance(part, int) else part for part in parts)
        same[0] = _before(len(zeros)) + same[0]
        self._pieces = [piece for before in same for piece in (before, b"")]
        self._tables: list[Sequence[int]] | None = None
        if places[-1] <= DIFFERENT_MAX and len(zeros) <= SIZE_MAX:
            self._checksum = crc32c(zeros)
            self._tables = _tables_of(len(zeros), parts)

    def frame(self, different: bytes) -> bytes:
        """Return the frame with these bytes in the places that differ, one after the other."""
        pieces = self._pieces.copy()
        filled = [different[place] for place in self._slices]
        pieces[1:-1:2] = filled
        if self._tables is None:
            found = crc32c(b"".join(pieces)[BEFORE_BYTES:])
        else:
            assert len(different) == len(self._tables), "something has another size"
            found = reduce(xor, map(getitem, self._tables, different), self._checksum)
        pieces[-1] = _pack_checksum(_masked(found))
        return b"".join(pieces)


def _tables_of(size: int, parts: Iterable[bytes | int]) -> list[Sequence[int]]:
    """Return how each byte that differs changes the checksum of data of a size."""
    tables: list[Sequence[int]] = []
    left = size
    for part in parts:
        left -= part if isinstance(part, int) else len(part)
        if isinstance(part, int):
            tables += [_changes(left + more) for more in reversed(range(part))]
    return tables


def framed(data: bytes) -> bytes:
    """Return data with its length and checksums around it."""
    return b"".join((_before(len(data)), data, _pack_checksum(_masked(crc32c(data)))))


def frames_in(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each frame with the data in it, up to the first that is not whole."""
    at = 0
    while at + 12 <= len(data):
        length, checksum = struct.unpack_from("<QI", data, at)
        end = at + 12 + length + 4
        if _masked(crc32c(data[at : at + 8])) != checksum or end > len(data):
            return
        body = data[at + 12 : end - 4]
        if struct.unpack_from("<I", data, end - 4)[0] != _masked(crc32c(body)):
            return
        yield data[at:end], body
        at = end


@lru_cache(4096)
def _before(size: int) -> bytes:
    """Return what stands before data of a size."""
    length = struct.pack("<Q", size)
    return length + _pack_checksum(_masked(crc32c(length)))


def _masked(found: int) -> int:
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


@lru_cache(_TABLES_MAX)
def _changes(distance: int) -> Sequence[int]:
    """Return how each value of a byte changes a checksum, so many bytes before the end of data."""
    found = [0]
    for bit in _bits(distance):
        found += [entry ^ bit for entry in found]
    return array("I", found)


def _bits(distance: int) -> tuple[int, ...]:
    """Return how each bit of a byte changes a checksum, so many bytes before the end of data."""
    table = _table()
    while len(_known_bits) <= distance:
        last = _known_bits[-1] if _known_bits else None
        if last is None:
            _known_bits.append(tuple(table[1 << bit] for bit in range(8)))
        else:
            _known_bits.append(tuple(table[one & 0xFF] ^ (one >> 8) for one in last))
    return _known_bits[distance]


_known_bits: list[tuple[int, ...]] = []

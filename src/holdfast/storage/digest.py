"""Digests of files, made so that several threads or ranged reads can share the work on one file.

A file of up to one block has the xxh3-128 of its bytes. A longer one has the xxh3-128 of the
digests of its blocks, in order. This finds damage, all of it that chance can do; it is no proof
against somebody who wants to deceive.
"""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from holdfast.storage.base import Buffer

ALGORITHM = "xxh3-128/16MiB"
BLOCK_BYTES = 16 << 20


def digest_bytes(data: Buffer) -> str:
    """Return the digest of bytes held in memory, whatever their length."""
    digester = Digester()
    digester.update(data)
    return digester.hexdigest()


def block_count(size: int) -> int:
    """Return how many blocks a file of `size` bytes has; an empty file has one empty block."""
    return max(1, -(-size // BLOCK_BYTES))


def combine(blocks: Sequence[bytes]) -> str:
    """Return the digest of a file from the digests of its blocks, in order."""
    return blocks[0].hex() if len(blocks) == 1 else xxhash.xxh3_128_hexdigest(b"".join(blocks))


class Digester:
    """The digest of bytes that go by in order."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._block = xxhash.xxh3_128()
        self._room = BLOCK_BYTES
        self.size = 0

    def update(self, data: Buffer) -> None:
        view = memoryview(data)
        self.size += len(view)
        while len(view):
            if not self._room:
                self._close_block()
            part = view[: self._room]
            self._block.update(part)
            self._room -= len(part)
            view = view[len(part) :]

    def hexdigest(self) -> str:
        return combine([*self._blocks, self._block.digest()])

    def _close_block(self) -> None:
        self._blocks.append(self._block.digest())
        self._block.reset()
        self._room = BLOCK_BYTES

"""Digests of files, and the blocks they are made of: the unit of work for fetching and verifying.

A file of up to one block has the xxh3-128 of its bytes. A longer one has the xxh3-128 of the
digests of its blocks, in order, so that several threads or ranged reads can share the work on one
file. This finds accidental damage; it does not protect against deliberate forgery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import xxhash

from holdfast.core.checkpoint.manifest import FileEntry
from holdfast.errors import ObjectMissing
from holdfast.storage.base import Buffer
from holdfast.storage.parallel import each

ALGORITHM = "xxh3-128/16MiB"
BLOCK_BYTES = 16 << 20
BATCH_FILES_MAX = 256


def digest_bytes(data: Buffer) -> str:
    """Return the digest of bytes in memory, of any length."""
    digester = Digester()
    digester.update(data)
    return digester.hexdigest()


def combine(blocks: Sequence[bytes]) -> str:
    """Return the digest of a file from the digests of its blocks, in order."""
    return blocks[0].hex() if len(blocks) == 1 else xxhash.xxh3_128_hexdigest(b"".join(blocks))


class Digester:
    """Computes the digest of a file from its bytes, given in order."""

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


class Block(NamedTuple):
    """One block of one file."""

    file: FileEntry
    start: int
    length: int

    @property
    def is_last(self) -> bool:
        return self.start + self.length == self.file.size


def blocks_of(files: Iterable[FileEntry]) -> list[Block]:
    """Return all blocks of all files, in order; an empty file has one block."""
    return [
        Block(entry, start, min(BLOCK_BYTES, entry.size - start))
        for entry in files
        for start in range(0, max(1, entry.size), BLOCK_BYTES)
    ]


def batched(blocks: Iterable[Block]) -> list[list[Block]]:
    """Return the blocks in batches that hold about a full block each."""
    batches: list[list[Block]] = []
    room = -1
    for block in blocks:
        if room < block.length or len(batches[-1]) >= BATCH_FILES_MAX:
            batches.append([])
            room = BLOCK_BYTES
        batches[-1].append(block)
        room -= block.length
    return batches


def check_blocks(
    files: Sequence[FileEntry], digest: Callable[[Block], bytes], threads: int
) -> list[str]:
    """Digest every block of every file; return one line for each file that does not match."""
    blocks = blocks_of(files)

    def attempt(block: Block) -> bytes | None:
        try:
            return digest(block)
        except ObjectMissing:
            return None

    digests_of: dict[str, list[bytes | None]] = {}
    for block, value in zip(blocks, each(attempt, blocks, threads), strict=True):
        digests_of.setdefault(block.file.path, []).append(value)
    problems = []
    for entry in files:
        digests = digests_of[entry.path]
        if None in digests:
            problems.append(f"{entry.path} is missing")
        elif entry.digest and combine([d for d in digests if d is not None]) != entry.digest:
            problems.append(f"{entry.path} does not match its digest")
    return problems

"""Files as blocks of the digest: the unit of work for fetching and verifying."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from holdfast.core.checkpoint.manifest import FileEntry
from holdfast.errors import ObjectMissing
from holdfast.storage.digest import BLOCK_BYTES, combine
from holdfast.storage.parallel import each

BATCH_FILES_MAX = 256


class Block(NamedTuple):
    """One block of one file."""

    file: FileEntry
    start: int
    length: int

    @property
    def is_last(self) -> bool:
        return self.start + self.length == self.file.size


def blocks_of(files: Iterable[FileEntry]) -> list[Block]:
    """Return all blocks of all files, in order; an empty file has one too."""
    return [
        Block(entry, start, min(BLOCK_BYTES, entry.size - start))
        for entry in files
        for start in range(0, max(1, entry.size), BLOCK_BYTES)
    ]


def batched(blocks: Iterable[Block]) -> list[list[Block]]:
    """Return the blocks in batches of about a full block, however small the files are."""
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
    """Digest every block of every file; return what does not match."""
    blocks = blocks_of(files)

    def attempt(block: Block) -> bytes | None:
        try:
            return digest(block)
        except ObjectMissing:
            return None

    found: dict[str, list[bytes | None]] = {}
    for block, value in zip(blocks, each(attempt, blocks, threads), strict=True):
        found.setdefault(block.file.path, []).append(value)
    problems = []
    for entry in files:
        digests = found[entry.path]
        if None in digests:
            problems.append(f"{entry.path} is missing")
        elif entry.digest and combine([d for d in digests if d is not None]) != entry.digest:
            problems.append(f"{entry.path} does not match its digest")
    return problems

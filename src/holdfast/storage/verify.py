"""Verifies stored files by reading every byte.

Damage is evidence about the content: a wrong size or digest, a missing file. Any other failure to
read is raised, because the files may be whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import xxhash

from holdfast.core.checkpoint.manifest import FileEntry
from holdfast.storage.base import Store, below
from holdfast.storage.digest import Block, batched, blocks_of, check_blocks, combine
from holdfast.storage.local.files import Digested, digest_ranges
from holdfast.storage.local.store import LocalStore
from holdfast.storage.parallel import Tally, Watch, each
from holdfast.storage.retry import with_retries
from holdfast.storage.transfer import THREADS_REMOTE

THREADS_VERIFY = min(4, os.cpu_count() or 1)


def damage_of(
    store: Store, prefix: str, files: Sequence[FileEntry], watch: Watch | None = None
) -> list[str]:
    """Read every byte of the files and return one line per damaged file; [] if all are whole.

    Raises `StoreError` if a file exists and cannot be read.
    """
    tally = Tally(watch or Watch(), sum(entry.size for entry in files), len(files))
    if store.local is not None:
        return _damage_on_disk(store, store.local, prefix, files, tally)
    # One cheap listing shows most kinds of damage.
    sizes = {entry.key: entry.size for entry in store.entries(prefix)}
    checks = [_size_problem(entry, sizes.get(below(prefix, entry.path))) for entry in files]
    if problems := [problem for problem in checks if problem]:
        return problems

    def digest(block: Block) -> bytes:
        data = store.read(below(prefix, block.file.path), block.start, block.length)
        tally.add(block.length, files=block.is_last)
        return xxhash.xxh3_128_digest(data)

    return check_blocks(files, digest, THREADS_REMOTE)


def _size_problem(entry: FileEntry, size: int | None) -> str | None:
    if size is None:
        return f"{entry.path} is missing"
    if size != entry.size:
        return f"{entry.path} has {size} bytes, {entry.size} were saved"
    return None


def _damage_on_disk(
    store: Store, local: LocalStore, prefix: str, files: Sequence[FileEntry], tally: Tally
) -> list[str]:
    """Digest blocks in batches, so that small files do not cost a thread switch each."""
    wrong: dict[str, str | None] = {}
    digests: dict[str, list[bytes]] = {entry.path: [] for entry in files}

    def digest(batch: list[Block]) -> list[Digested | None]:
        ranges = [(below(prefix, block.file.path), block.start, block.length) for block in batch]
        done = with_retries(store, lambda: list(digest_ranges(local, ranges)))
        sizes, files_done = (block.length for block in batch), (block.is_last for block in batch)
        tally.add(sum(sizes), files=sum(files_done))
        return done

    batches = batched(blocks_of(files))
    for batch, results in zip(batches, each(digest, batches, THREADS_VERIFY), strict=True):
        for block, result in zip(batch, results, strict=True):
            path, is_cut = block.file.path, result is not None and result.size != block.length
            if result is None or is_cut or (block.is_last and result.is_longer):
                stored = store.stat(below(prefix, path))
                wrong[path] = _size_problem(block.file, stored.size if stored else None)
            else:
                digests[path].append(result.digest)
    tally.checked()
    for entry in files:
        if entry.path not in wrong and combine(digests[entry.path]) != entry.digest:
            wrong[entry.path] = None
    return [
        wrong[entry.path] or f"{entry.path} does not match its digest"
        for entry in files
        if entry.path in wrong
    ]

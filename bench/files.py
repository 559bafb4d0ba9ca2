"""The files that are saved: bytes that do not compress, in as many files as asked for."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.question import MIB

READ_BYTES = MIB


def make_files(folder: Path, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """Write files of the given sizes, flushed and in the page cache; return their contents."""
    folder.mkdir(parents=True)
    contents = {name: os.urandom(size) for name, size in sizes.items()}
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    os.sync()
    return contents


def one_file(total: int) -> dict[str, int]:
    return {"model.bin": total}


def many_files(total: int, count: int) -> dict[str, int]:
    """Return `count` files of equal size, as a sharded or per-tensor checkpoint has."""
    return {f"shard-{number:05d}.bin": total // count for number in range(count)}


def mixture(total: int, count: int) -> dict[str, int]:
    """Return one file with half of the bytes, and the other half in `count` small ones."""
    return {"model.bin": total // 2, **many_files(total // 2, count)}


def write_raw(folder: Path, contents: Mapping[str, bytes], *, threads: int = 1) -> None:
    """Write and sync every file, then the folder: the least that makes them durable.

    The bytes come from memory, nothing is digested, nothing is renamed.
    """
    folder.mkdir()
    paths = [folder / name for name in contents]
    if threads == 1:
        for path, data in zip(paths, contents.values(), strict=True):
            _write_synced(path, data)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(_write_synced, paths, contents.values()))
    _sync(folder)


def read_raw(folder: Path, names: Mapping[str, object]) -> None:
    """Read every file to its end into one buffer, and look at none of the bytes.

    The buffer begins on a page: reading is twice as fast as into a `bytearray`.
    """
    buffer = mmap.mmap(-1, READ_BYTES)
    for path in [os.path.join(folder, name) for name in names]:
        handle = os.open(path, os.O_RDONLY)
        try:
            while os.readv(handle, [buffer]):
                continue
        finally:
            os.close(handle)


def drop_from_cache(folder: Path) -> None:
    """Make the next read of every file below `folder` go to the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def _write_synced(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        view = memoryview(data)
        while len(view):
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

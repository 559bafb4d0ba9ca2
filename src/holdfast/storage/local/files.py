"""Parts of a `LocalStore`: trees, appended files, digests of ranges, read buffers."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xxhash

from holdfast.storage.base import Buffer, Source
from holdfast.storage.local.disk import NO_FILE, READABLE, Disk
from holdfast.storage.local.errors import explained

if TYPE_CHECKING:
    from holdfast.storage.local.store import LocalStore

WRITE_BACK_BYTES = 8 << 20
BUFFER_BYTES = 1 << 20  # small enough to stay in the processor's cache
_SPARE_MAX = 16

_spare: deque[memoryview] = deque(maxlen=_SPARE_MAX)  # thread-safe


def borrow() -> memoryview:
    """Return a page-aligned buffer of `BUFFER_BYTES` with arbitrary contents.

    The kernel copies at less than half the speed to an address that is not a multiple of 32, which
    that of a `bytearray` never is. Buffers are reused because the pages of a new one are zeroed on
    first touch, which for a small file takes as long as reading it.
    """
    try:
        return _spare.pop()
    except IndexError:
        # Private: a process forked from this one must not read into the same memory.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        return memoryview(mmap.mmap(-1, BUFFER_BYTES, flags=private))


def give_back(buffer: memoryview) -> None:
    """Return a buffer for reuse; one that is never given back is simply garbage collected."""
    _spare.append(buffer)


class Appender:
    """A file that grows; written data is durable once `sync` has returned."""

    def __init__(self, disk: Disk, handle: int, path: str, key: str) -> None:
        self._disk, self._handle, self._path, self._key = disk, handle, path, key

    def write(self, data: Buffer) -> None:
        with explained("append to", self._path, self._key):
            self._disk.write(self._handle, data)

    def sync(self) -> None:
        with explained("sync", self._path, self._key):
            self._disk.sync(self._handle)

    def close(self) -> None:
        self._disk.close(self._handle)


class LocalTree:
    """Files below one folder: each is synced when written, folders once at the end."""

    def __init__(self, store: LocalStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix
        self._folders: set[str] = set()
        self._lock = threading.RLock()

    def write(self, name: str, source: Source) -> None:
        disk = self._store.disk
        key = f"{self._prefix}/{name}" if self._prefix else name
        path = self._store.path(key)
        with explained("write", path, key):
            self._enter(os.path.dirname(path))
            try:
                handle = disk.create(path)
            except FileExistsError:
                disk.remove(path)
                handle = disk.create(path)
            try:
                self._copy(disk, handle, source)
                disk.sync(handle)
            finally:
                disk.close(handle)

    @staticmethod
    def _copy(disk: Disk, handle: int, source: Source) -> None:
        written = begun = 0
        for chunk in source.chunks():
            disk.write(handle, chunk)
            written += len(chunk)
            if written - begun >= WRITE_BACK_BYTES:
                disk.write_back(handle, begun, written - begun)
                begun = written

    def make_folder(self, name: str) -> None:
        path = self._store.path(f"{self._prefix}/{name}" if self._prefix else name)
        with explained("make", path, name):
            self._enter(path)

    def finish(self) -> None:
        root = self._store.path(self._prefix)
        with explained("sync", root, self._prefix):
            self._enter(root)
            for folder in sorted(self._folders, key=len, reverse=True):
                self._store.disk.sync_dir(folder)
            self._store.make_folder(root)

    def _enter(self, folder: str) -> None:
        """Create a folder of the tree, and mark it and its parents to be synced."""
        with self._lock:
            if folder in self._folders:
                return
            if folder != self._store.path(self._prefix):
                self._enter(os.path.dirname(folder))
            self._store.make_folder_soon(folder)
            self._folders.add(folder)


@dataclass(frozen=True, slots=True)
class Digested:
    """The digest of a range of an object, its actual size, and whether more bytes follow."""

    digest: bytes
    size: int
    is_longer: bool


def digest_ranges(
    store: LocalStore, ranges: Iterable[tuple[str, int, int]]
) -> Iterator[Digested | None]:
    """Yield the xxh3-128 of ranges, given as key, start and length; None for a missing object."""
    buffer = borrow()
    try:
        for key, start, length in ranges:
            path = store.path(key)
            with explained("read", path, key):
                digested = _digest_part(store.disk, path, buffer, start, start + length)
            yield digested
    finally:
        give_back(buffer)


def _digest_part(
    disk: Disk, path: str, buffer: memoryview, start: int, end: int
) -> Digested | None:
    try:
        handle = disk.open(path)
    except OSError as error:
        if error.errno in NO_FILE:
            return None
        raise
    try:
        return _digest_range(disk, handle, buffer, start, end)
    except IsADirectoryError:
        return None
    finally:
        disk.close(handle)


def _digest_range(disk: Disk, handle: int, buffer: memoryview, start: int, end: int) -> Digested:
    digest, at = xxhash.xxh3_128(), start
    while at < end:
        size = disk.read_into(handle, buffer[: end - at], at)
        if not size:
            break
        digest.update(buffer[:size])
        at += size
    is_longer = bool(disk.read_into(handle, buffer[:1], end))
    return Digested(digest.digest(), at - start, is_longer)


def write_new(disk: Disk, path: str, data: Buffer, mode: int = READABLE) -> None:
    """Create a file whose bytes are durable on return; its name is not."""
    handle = disk.create(path, mode)
    try:
        disk.write(handle, data)
        disk.sync(handle)
    finally:
        disk.close(handle)


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a file, a link, or a folder with its contents; entries may vanish meanwhile.

    Links are not followed: their targets do not belong to the store.
    """
    info = disk.lstat(path)
    if info is None or not info.is_folder:
        disk.remove(path)
        return
    for name, is_folder in disk.scan(path):
        entry = os.path.join(path, name)
        if is_folder:
            remove_tree(disk, entry)
        else:
            with contextlib.suppress(FileNotFoundError):
                disk.remove(entry)
    with contextlib.suppress(FileNotFoundError):
        disk.rmdir(path)

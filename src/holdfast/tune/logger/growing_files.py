"""Files that grow: on a disk by appending, on an object store by uploading them again.

No file stays open between two calls. Appended data is durable once `sync` has returned; a replaced
file is whole at any moment, and durable once `replace` has returned.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import threading
from collections import OrderedDict
from functools import cache
from typing import Any, Protocol
from weakref import WeakValueDictionary

from holdfast.errors import Conflict, HoldfastError, ObjectMissing
from holdfast.storage.base import IF_ABSENT, Blob, IfVersion, Store
from holdfast.storage.local.disk import PosixDisk
from holdfast.storage.local.errors import explained
from holdfast.storage.local.store import TEMPORARY, LocalStore

CACHE_BYTES = 32 << 20
OBJECT_BYTES_MIN = 64 << 10
UNSYNCED_MAX = 4096
SYNC_EACH_MAX = 16  # files; with more, the whole file system is synced at once


class FileChanged(HoldfastError):
    """A file has an unexpected length: another process has written to it."""

    code = "HF710"


class GrowingFiles(Protocol):
    """Files by key; callers hold `lock`."""

    lock: threading.RLock

    def read(self, key: str) -> bytes | None:
        """Return a whole file, None if it is not there."""
        ...

    def adopt(self, key: str) -> None:
        """Make a file that another process wrote durable with the next `sync`."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Create a file; return False, and do nothing, if it exists.

        A crash may leave it torn until the next `sync` has returned.
        """
        ...

    def may_have(self, folder: str) -> bool:
        """Whether there may be numbered files in a folder."""
        ...

    def append(self, key: str, at: int, data: bytes, *, repair: bool) -> None:
        """Add to a file that is `at` bytes long, creating it if that is 0.

        Raises `FileChanged` without writing if it has another length. With `repair` a longer file
        is truncated instead, because our own last write may have failed halfway.
        """
        ...

    def replace(self, key: str, data: bytes) -> None:
        """Replace a whole file durably."""
        ...

    def replace_soon(self, key: str, data: bytes) -> None:
        """Replace a whole file; durable with the next `sync`."""
        ...

    def remove(self, key: str) -> None: ...

    def names(self, folder: str) -> list[str] | None:
        """Return the names of the files in a folder; None where replaced files keep their names."""
        ...

    def sync(self) -> None:
        """Return once everything written so far is durable."""
        ...

    def is_due(self, size: int, waiting: int) -> bool:
        """Whether `waiting` bytes are enough to extend a file of `size` now."""
        ...


def growing_files_on(store: Store) -> GrowingFiles:
    """Return the files of a store: one object, shared by all callers that hold it."""
    owner = store if store.local is None else store.local
    files: GrowingFiles | None = _in_use.get(id(owner))
    if files is None:
        files = DiskFiles(store.local) if store.local is not None else ObjectFiles(store)
        _in_use[id(owner)] = files
    return files


# By the id of the store. The files hold the store, so while they exist its id is not reused.
_in_use: WeakValueDictionary[int, Any] = WeakValueDictionary()


class DiskFiles:
    """Files on a disk, which are appended to."""

    def __init__(self, store: LocalStore) -> None:
        self.lock = threading.RLock()
        self._store = store
        self._unsynced: dict[str, bool] = {}  # by key, whether the file is new
        self._suspect: set[str] = set()  # keys whose bytes a failed sync may have lost

    def read(self, key: str) -> bytes | None:
        try:
            return self._store.get(key).data
        except ObjectMissing:
            return None

    def adopt(self, key: str) -> None:
        self._unsynced[key] = True

    def create(self, key: str, data: bytes) -> bool:
        disk, path = self._store.disk, self._store.path(key)
        with explained("write", path, key):
            try:
                handle = disk.create(path)
            except FileExistsError:
                return False
            except FileNotFoundError:
                self._store.make_folder_soon(os.path.dirname(path))
                handle = disk.create(path)
            self._unsynced[key] = True
            try:
                disk.write(handle, data)
            finally:
                disk.close(handle)
        self._sync_if_many()
        return True

    def may_have(self, folder: str) -> bool:
        path = self._store.path(folder)
        with explained("look at", path, folder):
            return self._store.disk.stat(path) is not None

    def append(self, key: str, at: int, data: bytes, *, repair: bool) -> None:
        if at == 0 and self.create(key, data):
            return
        disk, path = self._store.disk, self._store.path(key)
        with explained("append to", path, key):
            try:
                handle = disk.open_append(path)
            except FileNotFoundError:
                raise FileChanged(f"{path} is gone") from None
            try:
                self._unsynced.setdefault(key, False)
                status = disk.stat(path)
                size = 0 if status is None else status.size
                if size > at and repair:
                    disk.truncate(handle, at)
                elif size != at:
                    raise FileChanged(f"{path} has {size} bytes instead of {at}")
                disk.write(handle, data)
            finally:
                disk.close(handle)
        self._sync_if_many()

    def _sync_if_many(self) -> None:
        if len(self._unsynced) > UNSYNCED_MAX:  # no sync was asked for in a long time
            self.sync()

    def replace(self, key: str, data: bytes) -> None:
        self._store.put(key, data)
        self._unsynced.pop(key, None)
        self._suspect.discard(key)

    def replace_soon(self, key: str, data: bytes) -> None:
        disk, path = self._store.disk, self._store.path(key)
        folder = os.path.dirname(path)
        temporary = os.path.join(folder, f".{secrets.token_hex(8)}{TEMPORARY}")
        with explained("write", path, key):
            self._store.make_folder_soon(folder)
            handle = disk.create(temporary)
            try:
                disk.write(handle, data)
            except BaseException:
                with contextlib.suppress(OSError):
                    disk.remove(temporary)
                raise
            finally:
                disk.close(handle)
            disk.rename(temporary, path)
        self._unsynced[key] = True

    def remove(self, key: str) -> None:
        self._store.delete(key)
        self._unsynced.pop(key, None)

    def names(self, folder: str) -> list[str] | None:
        path = self._store.path(folder)
        with explained("list", path, folder):
            try:
                return [name for name, is_folder in self._store.disk.scan(path) if not is_folder]
            except (FileNotFoundError, NotADirectoryError):
                return []

    def sync(self) -> None:
        for key in sorted(self._suspect):
            # Bytes that a failed sync lost may still be in memory, and only there.
            data = self.read(key)
            if data is not None:
                self.replace(key, data)
            self._suspect.discard(key)
        if self._unsynced and (len(self._unsynced) <= SYNC_EACH_MAX or not self._sync_at_once()):
            self._sync_each()
        self._unsynced.clear()

    def _sync_at_once(self) -> bool:
        """Sync the whole file system, which is as fast as syncing a few files."""
        sync = _syncfs() if type(self._store.disk) is PosixDisk else None
        if sync is None:
            return False
        with explained("sync", self._store.root, None):
            handle = self._store.disk.open(self._store.root)
            try:
                if sync(handle) != 0:
                    # Some file has a problem; which one is not known.
                    self._suspect.update(self._unsynced)
                    error = ctypes.get_errno()
                    raise OSError(error, os.strerror(error))
            finally:
                self._store.disk.close(handle)
        return True

    def _sync_each(self) -> None:
        folders: set[str] = set()
        for key, is_new in sorted(self._unsynced.items()):
            path = self._store.path(key)
            if is_new:
                folders.add(os.path.dirname(path))
            with explained("sync", path, key):
                self._sync_file(key, path)
        for folder in sorted(folders):
            with explained("sync", folder, None):
                if self._store.disk.stat(folder) is not None:
                    self._store.make_folder(folder)
                    self._store.disk.sync_dir(folder)

    def _sync_file(self, key: str, path: str) -> None:
        disk = self._store.disk
        try:
            handle = disk.open_append(path)
        except FileNotFoundError:
            return  # deleted meanwhile
        try:
            disk.sync(handle)
        except OSError:
            self._suspect.add(key)
            raise
        finally:
            disk.close(handle)

    def is_due(self, size: int, waiting: int) -> bool:
        return True


class ObjectFiles:
    """Objects that are uploaded again to grow, unless another process has written them meanwhile.

    The newest are cached, up to `CACHE_BYTES`, so that they need not be read before that.
    """

    def __init__(self, store: Store) -> None:
        self.lock = threading.RLock()
        self._store = store
        self._cache: OrderedDict[str, Blob] = OrderedDict()
        self._cached_bytes = 0

    def read(self, key: str) -> bytes | None:
        self._forget(key)
        try:
            blob = self._store.get(key)
        except ObjectMissing:
            return None
        self._remember(key, blob)
        return blob.data

    def adopt(self, key: str) -> None:
        """Every put is durable."""

    def create(self, key: str, data: bytes) -> bool:
        try:
            self._store.put(key, data, IF_ABSENT)
        except Conflict:
            return False
        return True

    def may_have(self, folder: str) -> bool:
        return False

    def append(self, key: str, at: int, data: bytes, *, repair: bool) -> None:
        if at and key not in self._cache:
            self.read(key)
        before = self._cache.get(key)
        size = 0 if before is None else len(before.data)
        if size != at:
            raise FileChanged(f"{self._store.url}/{key} has {size} bytes instead of {at}")
        self._forget(key)  # if the put fails, the content is unknown
        condition = IF_ABSENT if before is None else IfVersion(before.version)
        grown = data if before is None else before.data + data
        try:
            version = self._store.put(key, grown, condition)
        except Conflict:
            raise FileChanged(f"{self._store.url}/{key} was written by another process") from None
        self._remember(key, Blob(grown, version))

    def replace(self, key: str, data: bytes) -> None:
        self._forget(key)
        self._remember(key, Blob(data, self._store.put(key, data)))

    def replace_soon(self, key: str, data: bytes) -> None:
        self._store.put(key, data)

    def remove(self, key: str) -> None:
        self._forget(key)
        self._store.delete(key)

    def names(self, folder: str) -> list[str] | None:
        return None

    def sync(self) -> None:
        """Every put is durable."""

    def is_due(self, size: int, waiting: int) -> bool:
        # Each put uploads the whole file, so it must have grown by a share of its size.
        return waiting >= max(OBJECT_BYTES_MIN, size // 4)

    def _remember(self, key: str, blob: Blob) -> None:
        self._cache[key] = blob
        self._cached_bytes += len(blob.data)
        while self._cached_bytes > CACHE_BYTES:
            _, dropped = self._cache.popitem(last=False)
            self._cached_bytes -= len(dropped.data)

    def _forget(self, key: str) -> None:
        dropped = self._cache.pop(key, None)
        if dropped is not None:
            self._cached_bytes -= len(dropped.data)


@cache
def _syncfs() -> Any | None:
    """Return Linux's syncfs(2), or None elsewhere."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is not None:
        function.argtypes = [ctypes.c_int]
    return function

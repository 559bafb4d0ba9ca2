"""The `Disk` protocol: the few file operations that durability depends on.

`LocalStore` does everything through a `Disk`, so that tests can use a recording or failing disk
(`holdfast.testing.disk`) with exactly the code in use. What a `Disk` promises, and all that the
layers above rely on (see docs/assumptions.md):

- written bytes are durable once `sync` of their handle has returned, in any order before that;
- a name (create, link, rename, remove, mkdir) is durable once `sync_dir` of its folder has;
- `rename` and `link` are atomic, and `link` and `create` fail where the name exists.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from holdfast.storage.base import Buffer

LOCK_POLL_S = 0.005
READABLE = 0o666  # by others, as the umask allows
OWN = 0o600  # by this user alone
# Errors that prove that no file has a name: a loop of links leads nowhere.
NO_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_SYNC_FILE_RANGE_WRITE = 2


@dataclass(frozen=True, slots=True)
class Stat:
    """What a name refers to: a folder, or a file of `size` bytes, or a link to either."""

    is_folder: bool
    size: int
    modified: float
    is_link: bool = False


class Disk(Protocol):
    """File operations as the kernel names them; every failure is an `OSError`."""

    def create(self, path: str, mode: int = READABLE) -> int: ...
    def open(self, path: str) -> int: ...
    def open_append(self, path: str) -> int: ...
    def read_into(self, handle: int, buffer: memoryview, offset: int) -> int: ...
    def write(self, handle: int, data: Buffer) -> None: ...
    def write_back(self, handle: int, start: int, length: int) -> None: ...
    def truncate(self, handle: int, size: int) -> None: ...
    def sync(self, handle: int) -> None: ...
    def close(self, handle: int) -> None: ...
    def link(self, old: str, new: str) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def mkdir(self, path: str) -> None: ...
    def rmdir(self, path: str) -> None: ...
    def sync_dir(self, path: str) -> None: ...
    def stat(self, path: str) -> Stat | None: ...
    def lstat(self, path: str) -> Stat | None: ...
    def scan(self, path: str) -> list[tuple[str, bool]]: ...
    def lock(self, path: str, timeout_s: float) -> contextlib.AbstractContextManager[None]: ...


class PosixDisk:
    """The real disk of this machine."""

    def create(self, path: str, mode: int = READABLE) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)

    def open(self, path: str) -> int:
        # Refuse pipes and devices, and do not block on them: a pipe may have no writer.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", path)
        return handle

    def open_append(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def read_into(self, handle: int, buffer: memoryview, offset: int) -> int:
        return os.preadv(handle, [buffer], offset)

    def write(self, handle: int, data: Buffer) -> None:
        view = memoryview(data)
        while len(view):
            view = view[os.write(handle, view) :]

    def write_back(self, handle: int, start: int, length: int) -> None:
        """Ask the kernel to begin writing now, so that the later `sync` is faster."""
        begin = _sync_file_range()
        if begin is not None:
            begin(handle, start, length, _SYNC_FILE_RANGE_WRITE)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        os.fsync(handle)

    def close(self, handle: int) -> None:
        os.close(handle)

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def stat(self, path: str) -> Stat | None:
        try:
            info = os.stat(path)
        except OSError as error:
            if error.errno in NO_FILE:
                return None
            raise
        return Stat(stat.S_ISDIR(info.st_mode), info.st_size, info.st_mtime)

    def lstat(self, path: str) -> Stat | None:
        """Like `stat`, but a link is not followed, and is not a folder."""
        try:
            info = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        is_link = stat.S_ISLNK(info.st_mode)
        return Stat(stat.S_ISDIR(info.st_mode), info.st_size, info.st_mtime, is_link)

    def scan(self, path: str) -> list[tuple[str, bool]]:
        with os.scandir(path) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]

    @contextlib.contextmanager
    def lock(self, path: str, timeout_s: float) -> Iterator[None]:
        """Hold an exclusive lock that the kernel releases when its holder dies."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            deadline = time.monotonic() + timeout_s
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(LOCK_POLL_S)
            yield
        finally:
            os.close(handle)


@cache
def _sync_file_range() -> Any | None:
    """Return sync_file_range(2) on Linux, None elsewhere; it is a hint and promises nothing."""
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function

"""A disk in memory that behaves like a POSIX file system and records every operation.

`holdfast.testing.crashes` turns the record into the states a power cut could leave behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.storage.base import Buffer
from holdfast.storage.local.disk import READABLE, Stat
from holdfast.testing.oplog import (
    ROOT,
    EntryChange,
    Image,
    Marked,
    Named,
    Operation,
    Synced,
    Truncated,
    Written,
    change_entries,
    overwrite,
    resize,
)
from holdfast.testing.paths import check_length, error_at, names_of, steps_to


@dataclass(slots=True)
class _Handle:
    """An open file; `offset` is where the next write goes, None for the end of the file."""

    inode: int
    path: str
    is_writable: bool
    offset: int | None


class SimDisk:
    """A `Disk` in memory. Paths are absolute and contain no `..`; there are no permissions.

    Handles are never reused and `scan` keeps the order of creation, so equal calls leave equal
    logs. May be used from several threads.

    Args:
        folders: Made, with their parents, before the log begins, hence durable.
        image: The initial content of the disk; an empty root if not given.
        clock: Gives `Stat.modified`; everything in the image was modified when the log began.
    """

    def __init__(
        self,
        *folders: str,
        image: Image | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.clock = clock
        self._guard = threading.RLock()
        self._handles: dict[int, _Handle] = {}
        self._next_handle = 3
        self._latches: dict[int, threading.Lock] = {}
        self._begin(image if image is not None else Image.empty())
        if folders:
            for path in (step for folder in folders for step in steps_to(folder)):
                if self.stat(path) is None:
                    self.mkdir(path)
            self.settle()

    # ------------------------------------------------------------------ the record

    @property
    def start(self) -> Image:
        """The durable content of the disk when the log began."""
        return self._start

    @property
    def log(self) -> Sequence[Operation]:
        """Every operation that changed the disk or synced it, in order, with the marks."""
        return self._log

    def mark(self, label: str) -> None:
        """Note in the log what is begun or promised at this point."""
        with self._guard:
            self._log.append(Marked(label))

    def settle(self) -> None:
        """Make everything on the disk durable and begin a new log."""
        with self._guard:
            self._begin(self.image())

    def image(self) -> Image:
        """Return what a reader sees now, durable or not."""
        with self._guard:
            if not self._is_own:
                return self._start
            files = {inode: bytes(data) for inode, data in self._files.items()}
            self._own_folders.clear()  # from now on shared with the image
            return Image(files, dict(self._folders), self._next_inode)

    def tree(self) -> dict[str, bytes | None]:
        """Return every path with its contents, sorted; None stands for a folder."""
        return dict(sorted(self.image().walk()))

    def _begin(self, image: Image) -> None:
        """Share the image's tables until the first change, so that disks only read cost nothing."""
        self._start = image
        self._log: list[Operation] = []
        self._files: dict[int, bytes | bytearray] = image.files  # type: ignore[assignment]
        self._folders = image.folders
        self._next_inode = image.next_inode
        self._is_own = False
        self._own_folders: set[int] = set()
        self._stamps: dict[int, float] = {}
        self._began_at = self.clock()

    # ------------------------------------------------------------------ files

    def create(self, path: str, mode: int = READABLE) -> int:  # there are no other users here
        with self._guard:
            folder, name = self._vacant(path)
            return self._opened(self._new_file(folder, name, path), path, offset=0)

    def open(self, path: str) -> int:
        with self._guard:
            return self._opened(self._find(path), path, is_writable=False)

    def open_append(self, path: str) -> int:
        with self._guard:
            inode = self._find(path)
            if inode in self._folders:
                raise error_at(errno.EISDIR, path)
            return self._opened(inode, path)

    def read_into(self, handle: int, buffer: memoryview, offset: int) -> int:
        with self._guard:
            opened = self._handle(handle)
            if offset < 0:
                raise error_at(errno.EINVAL, opened.path)
            if opened.is_writable:
                raise error_at(errno.EBADF, opened.path)
            if not len(buffer):
                return 0  # even of a folder
            if opened.inode in self._folders:
                raise error_at(errno.EISDIR, opened.path)
            part = memoryview(self._files[opened.inode])[offset : offset + len(buffer)]
            buffer[: len(part)] = part
            return len(part)

    def write(self, handle: int, data: Buffer) -> None:
        copied = bytes(data)
        if not copied:
            return  # not even a system call
        with self._guard:
            opened = self._handle(handle)
            if not opened.is_writable:
                raise error_at(errno.EBADF, opened.path)
            content = self._own_file(opened.inode)
            offset = len(content) if opened.offset is None else opened.offset
            overwrite(content, offset, copied)
            if opened.offset is not None:
                opened.offset = offset + len(copied)
            self._log.append(Written(opened.inode, opened.path, offset, copied))

    def write_back(self, handle: int, start: int, length: int) -> None:
        """Do nothing: a hint makes nothing durable."""

    def truncate(self, handle: int, size: int) -> None:
        with self._guard:
            opened = self._handle(handle)
            if not opened.is_writable or size < 0:
                raise error_at(errno.EINVAL, opened.path)
            resize(self._own_file(opened.inode), size)
            self._log.append(Truncated(opened.inode, opened.path, size))

    def sync(self, handle: int) -> None:
        with self._guard:
            opened = self._handle(handle)
            is_folder = opened.inode in self._folders
            self._log.append(Synced(opened.inode, opened.path, is_folder))

    def close(self, handle: int) -> None:
        with self._guard:
            self._handle(handle)
            del self._handles[handle]

    # ------------------------------------------------------------------ names

    def link(self, old: str, new: str) -> None:
        with self._guard:
            inode = self._find(old)
            folder, name = self._vacant(new)
            if inode in self._folders:
                raise error_at(errno.EPERM, old, new)
            self._name("link", f"{old} -> {new}", (folder, name, inode))

    def rename(self, old: str, new: str) -> None:
        with self._guard:
            old_line, old_name = self._parents(old)
            new_line, new_name = self._parents(new)
            moved = self._folders[old_line[-1]].get(old_name)
            replaced = self._folders[new_line[-1]].get(new_name)
            if moved is None:
                raise error_at(errno.ENOENT, old, new)
            if moved in new_line:
                raise error_at(errno.EINVAL, old, new)  # into itself
            if replaced in old_line:
                raise error_at(errno.ENOTEMPTY, old, new)
            if moved == replaced:
                return  # two names of one file: POSIX says that both stay
            if replaced is not None:
                self._check_replaceable(moved, replaced, old, new)
            self._name(
                "rename",
                f"{old} -> {new}",
                (old_line[-1], old_name, None),
                (new_line[-1], new_name, moved),
            )

    def remove(self, path: str) -> None:
        with self._guard:
            folder, name, inode = self._entry(path)
            if inode in self._folders:
                raise error_at(errno.EISDIR, path)
            self._name("remove", path, (folder, name, None))

    def mkdir(self, path: str) -> None:
        with self._guard:
            folder, name = self._vacant(path)
            inode = self._new_inode()
            self._folders[inode] = {}
            self._own_folders.add(inode)
            self._name("mkdir", path, (folder, name, inode), born=inode)

    def rmdir(self, path: str) -> None:
        with self._guard:
            folder, name, inode = self._entry(path)
            if inode not in self._folders:
                raise error_at(errno.ENOTDIR, path)
            if self._folders[inode]:
                raise error_at(errno.ENOTEMPTY, path)
            self._name("rmdir", path, (folder, name, None))

    def sync_dir(self, path: str) -> None:
        with self._guard:
            self._log.append(Synced(self._folder(path), path, is_folder=True))

    # ------------------------------------------------------------------ looking, locking

    def stat(self, path: str) -> Stat | None:
        with self._guard:
            try:
                inode = self._find(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            modified = self._stamps.get(inode, self._began_at)
            if inode in self._folders:
                return Stat(is_folder=True, size=0, modified=modified)
            return Stat(is_folder=False, size=len(self._files[inode]), modified=modified)

    def lstat(self, path: str) -> Stat | None:
        return self.stat(path)  # there are no links here

    def scan(self, path: str) -> list[tuple[str, bool]]:
        with self._guard:
            entries = self._folders[self._folder(path)]
            return [(name, inode in self._folders) for name, inode in entries.items()]

    @contextlib.contextmanager
    def lock(self, path: str, timeout_s: float) -> Iterator[None]:
        with self._guard:
            if self.stat(path) is None:
                self._new_file(*self._vacant(path), path)
            inode = self._find(path)
            if inode in self._folders:
                raise error_at(errno.EISDIR, path)
            latch = self._latches.setdefault(inode, threading.Lock())
        if not latch.acquire(timeout=max(0.0, timeout_s)):
            raise error_at(errno.EAGAIN, path)
        try:
            yield
        finally:
            latch.release()

    # ------------------------------------------------------------------ looking up paths

    def _line(self, path: str, names: Sequence[str]) -> list[int]:
        """Return the inodes on the way along `names`, with the root first."""
        line = [ROOT]
        for name in names:
            entries = self._folders.get(line[-1])
            if entries is None:
                raise error_at(errno.ENOTDIR, path)
            check_length(name, path)
            if name not in entries:
                raise error_at(errno.ENOENT, path)
            line.append(entries[name])
        return line

    def _find(self, path: str) -> int:
        return self._line(path, names_of(path))[-1]

    def _folder(self, path: str) -> int:
        inode = self._find(path)
        if inode not in self._folders:
            raise error_at(errno.ENOTDIR, path)
        return inode

    def _parents(self, path: str) -> tuple[list[int], str]:
        """Return the inodes from the root to the folder of `path`, and the name in it."""
        names = names_of(path)
        if not names:
            raise error_at(errno.EBUSY, path)
        line = self._line(path, names[:-1])
        if line[-1] not in self._folders:
            raise error_at(errno.ENOTDIR, path)
        check_length(names[-1], path)
        return line, names[-1]

    def _entry(self, path: str) -> tuple[int, str, int]:
        """Return folder, name and inode of a path that exists."""
        line, name = self._parents(path)
        if name not in self._folders[line[-1]]:
            raise error_at(errno.ENOENT, path)
        return line[-1], name, self._folders[line[-1]][name]

    def _vacant(self, path: str) -> tuple[int, str]:
        """Return folder and name of a path that does not exist."""
        if not names_of(path):
            raise error_at(errno.EEXIST, path)
        line, name = self._parents(path)
        if name in self._folders[line[-1]]:
            raise error_at(errno.EEXIST, path)
        return line[-1], name

    def _check_replaceable(self, moved: int, replaced: int, old: str, new: str) -> None:
        if moved not in self._folders:
            if replaced in self._folders:
                raise error_at(errno.EISDIR, old, new)
        elif replaced not in self._folders:
            raise error_at(errno.ENOTDIR, old, new)
        elif self._folders[replaced]:
            raise error_at(errno.ENOTEMPTY, old, new)

    def _handle(self, handle: int) -> _Handle:
        opened = self._handles.get(handle)
        if opened is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return opened

    # ------------------------------------------------------------------ changing

    def _own(self) -> None:
        """Stop sharing the tables of the image this disk began with."""
        if not self._is_own:
            self._files, self._folders = dict(self._files), dict(self._folders)
            self._is_own = True

    def _own_file(self, inode: int) -> bytearray:
        self._own()
        content = self._files[inode]
        if not isinstance(content, bytearray):
            content = self._files[inode] = bytearray(content)
        self._stamps[inode] = self.clock()
        return content

    def _new_inode(self) -> int:
        self._own()
        self._next_inode += 1
        return self._next_inode - 1

    def _new_file(self, folder: int, name: str, path: str) -> int:
        inode = self._new_inode()
        self._files[inode] = b""
        self._stamps[inode] = self.clock()
        self._name("create", path, (folder, name, inode), born=inode)
        return inode

    def _name(self, verb: str, path: str, *changes: EntryChange, born: int | None = None) -> None:
        self._own()
        change_entries(self._folders, changes, self._own_folders)
        for folder, _, _ in changes:
            self._stamps[folder] = self.clock()
        self._log.append(Named(verb, path, changes, born))

    def _opened(
        self, inode: int, path: str, *, offset: int | None = None, is_writable: bool = True
    ) -> int:
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = _Handle(inode, path, is_writable, offset)
        return handle

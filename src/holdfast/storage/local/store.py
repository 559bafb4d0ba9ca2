"""A store on a local or mounted disk: atomic by rename, durable by fsync of files and folders.

Names that end in `.hf-tmp` are unfinished puts or deletions; they are never listed, and are litter
once their process is gone. All file operations go through a `Disk`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from holdfast.errors import Conflict, StoreBusy, StoreError
from holdfast.storage.base import (
    ALWAYS,
    Always,
    Blob,
    Buffer,
    Condition,
    Entry,
    IfAbsent,
    IfVersion,
    TreeWriter,
)
from holdfast.storage.digest import digest_bytes
from holdfast.storage.local.disk import OWN, READABLE, Disk, PosixDisk
from holdfast.storage.local.errors import explained
from holdfast.storage.local.files import Appender, LocalTree, remove_tree, write_new

if TYPE_CHECKING:
    from holdfast.storage.foreign.filesystems import LocalView

TEMPORARY = ".hf-tmp"
LOCK_NAME = ".hf-lock"
LOCK_TIMEOUT_S = 10.0
DURABLE_MAX = 4096  # names to remember; a forgotten one is synced once more
FIRST_READ_BYTES = 16 << 10  # enough for most files; allocating more costs as much as the read


class LocalStore:
    """A folder of this machine's disk as a store."""

    fences = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        disk: Disk | None = None,
        durable: set[str] | None = None,
        mode: int = READABLE,
        view: LocalView | None = None,
    ) -> None:
        self.root = os.path.abspath(os.fspath(root))
        self.view = view  # the user's filesystem, if it has its own paths for this folder
        self._root_prefix = os.path.join(self.root, "")  # joined once, not for every key
        self.disk: Disk = disk if disk is not None else PosixDisk()
        self._mode = mode  # of new files
        # Folders whose names are known to be durable, below the root and above it.
        self._durable: set[str] = set() if durable is None else durable

    @property
    def url(self) -> str:
        return self.root

    @property
    def local(self) -> LocalStore | None:
        return self

    def path(self, key: str) -> str:
        """Return the file path of `key`; an empty key is the root."""
        return self._root_prefix + key if key else self.root

    def child(self, key: str) -> LocalStore:
        """Return the store rooted at the folder `key`; both share what they know to be durable."""
        return LocalStore(self.path(key), self.disk, self._durable, self._mode, self.view)

    def closed_to_others(self) -> LocalStore:
        """Return the same store; only this user can read what it writes."""
        return LocalStore(self.root, self.disk, self._durable, OWN, self.view)

    @property
    def is_durable(self) -> bool:
        """Whether the root's own name is known to be durable."""
        return self.root in self._durable

    def trust(self) -> None:
        """Note that, according to another process, the root's own name is durable."""
        self._durable.add(self.root)

    # ------------------------------------------------------------------ reading

    def get(self, key: str) -> Blob:
        with explained("read", self.path(key), key):
            data = self._read_all(self.path(key))
        return Blob(data, digest_bytes(data))

    def read(self, key: str, start: int, length: int) -> bytes:
        with explained("read", self.path(key), key), self._opened(self.path(key)) as handle:
            return self._read_at(handle, start, length)

    def stream(self, key: str, chunk_bytes: int = 1 << 20) -> Iterator[Buffer]:
        buffer = memoryview(bytearray(min(chunk_bytes, FIRST_READ_BYTES)))
        with explained("read", self.path(key), key), self._opened(self.path(key)) as handle:
            offset = 0
            while size := self.disk.read_into(handle, buffer, offset):
                yield buffer[:size]
                offset += size
                if size == len(buffer) < chunk_bytes:
                    buffer = memoryview(bytearray(chunk_bytes))

    def stat(self, key: str) -> Entry | None:
        with explained("look at", self.path(key), key):
            info = self.disk.stat(self.path(key))
        if info is None or info.is_folder:
            return None
        return Entry(key, info.size, info.modified)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        for key, is_folder in self._walk(prefix.rstrip("/")):
            if is_folder or _is_temporary(key):
                continue
            entry = self.stat(key)
            if entry is not None:
                yield entry

    def names(self, folder: str) -> list[str]:
        """Return the names directly below a folder; [] if it does not exist."""
        return [name for name, _ in self._scan(folder) if not _is_temporary(name)]

    def folders(self, prefix: str = "") -> list[str]:
        return sorted(
            name
            for name, is_folder in self._scan(prefix.rstrip("/"))
            if is_folder and not _is_temporary(name)
        )

    # ------------------------------------------------------------------ writing

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        path = self.path(key)
        folder = os.path.dirname(path)
        temporary = os.path.join(folder, f".{secrets.token_hex(8)}{TEMPORARY}")
        with explained("write", path, key):
            self.make_folder(folder)
            try:
                write_new(self.disk, temporary, data, self._mode)
                self._put_in_place(key, temporary, condition)
            except BaseException:
                self._remove_quietly(temporary)
                raise
            self.disk.sync_dir(folder)
        return digest_bytes(data)

    def _put_in_place(self, key: str, temporary: str, condition: Condition) -> None:
        path = self.path(key)
        match condition:
            case Always():
                self.disk.rename(temporary, path)
            case IfAbsent():
                try:
                    self.disk.link(temporary, path)
                except FileExistsError:
                    # The caller may rely on the existing object, so its name must be durable.
                    self.disk.sync_dir(os.path.dirname(path))
                    raise Conflict(f"{path} exists already", key=key) from None
                self.disk.remove(temporary)
            case IfVersion(version):
                with self._locked(os.path.dirname(path)):
                    if self._version(path) != version:
                        raise Conflict(f"{path} has changed since it was read", key=key)
                    self.disk.rename(temporary, path)

    def delete(self, key: str) -> None:
        path = self.path(key)
        with explained("delete", path, key):
            try:
                self.disk.remove(path)
            except FileNotFoundError:
                if self.disk.stat(os.path.dirname(path)) is None:
                    return
            self.disk.sync_dir(os.path.dirname(path))  # also if another process removed it

    def delete_tree(self, prefix: str) -> None:
        if not prefix:
            for name, is_folder in self._scan(""):
                (self.delete_tree if is_folder else self.delete)(name)
            return
        path = self.path(prefix.rstrip("/"))
        with explained("delete", path, prefix):
            if self.disk.lstat(path) is None:
                if self.disk.stat(os.path.dirname(path)) is not None:
                    self.disk.sync_dir(os.path.dirname(path))
                return
            # Renamed first, so that no reader ever sees half a folder.
            doomed = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}{TEMPORARY}")
            self.disk.rename(path, doomed)
            self.disk.sync_dir(os.path.dirname(path))
            self._forget(path)
            remove_tree(self.disk, doomed)

    def discard_tree(self, key: str) -> None:
        """Remove a folder that has no readers; it may come back as litter after a power cut."""
        path = self.path(key)
        with explained("delete", path, key), contextlib.suppress(FileNotFoundError):
            self._forget(path)
            remove_tree(self.disk, path)

    def has(self, key: str) -> bool:
        """Whether a file, a folder (even an empty one) or a link has that name."""
        with explained("look at", self.path(key), key):
            return self.disk.lstat(self.path(key)) is not None

    def link_above(self, key: str) -> str | None:
        """Return the first folder between the root and `key` that is a link, or None."""
        parts = key.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            with explained("look at", self.path(folder), folder):
                info = self.disk.lstat(self.path(folder))
            if info is not None and info.is_link:
                return folder
        return None

    def write_tree(self, prefix: str) -> TreeWriter:
        return LocalTree(self, prefix.rstrip("/"))

    def move_tree(self, old: str, new: str, *, durably: bool = True) -> None:
        """Rename a folder atomically; raise `Conflict` if `new` is not empty."""
        source, target = self.path(old), self.path(new)
        with explained("rename", target, new):
            self.make_folder(os.path.dirname(target))
            try:
                self.disk.rename(source, target)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise Conflict(f"{target} exists already", key=new) from None
                raise
            self._forget(source)
            if durably:  # syncing either folder makes a rename durable
                self.disk.sync_dir(os.path.dirname(target))

    def move_file(self, old: str, new: str) -> None:
        """Rename one file, creating folders; durable after `sync_folders` of its folder."""
        target = self.path(new)
        with explained("rename", target, new):
            self.make_folder_soon(os.path.dirname(target))
            self.disk.rename(self.path(old), target)

    def sync_folders(self, keys: Iterable[str]) -> None:
        """Make the names in these folders durable; missing folders are created."""
        for key in keys:
            with explained("sync", self.path(key), key):
                self.make_folder_soon(self.path(key))
                self.disk.sync_dir(self.path(key))

    def appender(self, key: str) -> Appender:
        """Create the object `key`, which must not exist, and return an appender for it."""
        path = self.path(key)
        with explained("write", path, key):
            self.make_folder(os.path.dirname(path))
            try:
                handle = self.disk.create(path)
            except FileExistsError:
                raise Conflict(f"{path} exists already", key=key) from None
            try:
                self.disk.sync_dir(os.path.dirname(path))
            except BaseException:
                self.disk.close(handle)
                raise
        return Appender(self.disk, handle, path, key)

    # ------------------------------------------------------------------ litter, probing

    def litter(self, prefix: str = "") -> Iterator[Entry]:
        for key, _ in self._walk(prefix.rstrip("/")):
            if _is_temporary(key):
                with explained("look at", self.path(key), key):
                    info = self.disk.stat(self.path(key))
                if info is not None:
                    yield Entry(key, info.size, info.modified)

    def delete_litter(self, entry: Entry) -> None:
        self.discard_tree(entry.key)

    def probe(self, *, writable: bool) -> None:
        with explained("reach", self.root, None):
            info = self.disk.stat(self.root)
            if info is not None and not info.is_folder:
                raise StoreError(
                    f"{self.root} is a file, not a folder", hint="name a folder as storage path"
                )
            if info is not None:
                self.disk.scan(self.root)
            if writable:
                self.make_folder(self.root)

    # ------------------------------------------------------------------ folders

    def keep_folder(self, key: str) -> None:
        """Create the folder `key` durably."""
        with explained("make", self.path(key), key):
            self.make_folder(self.path(key))

    def make_folder(self, path: str) -> None:
        """Create `path` and its missing parents, with durable names.

        An existing folder may have been created by a process that died before it synced the name,
        so every name on the way is synced once by each store object that relies on it.
        """
        parent = os.path.dirname(path)
        if path in self._durable or path == parent:
            return
        if len(self._durable) >= DURABLE_MAX:
            self._durable.clear()  # before its parents are added: see `_forget`
        self.make_folder(parent)
        is_made = self._make_if_missing(path)
        try:
            self.disk.sync_dir(parent)
        except OSError:
            # Folders above the root are not ours, and we may not even be allowed to read them.
            if is_made or self._is_below_root(path):
                raise
        self._durable.add(path)

    def make_folder_soon(self, path: str) -> None:
        """Create `path` and its missing parents; the names are durable only after a later sync.

        The root's own name is durable on return, because later syncs happen only below it.
        """
        if not self._is_below_root(path):
            self.make_folder(path)
        elif self.disk.stat(path) is None:
            self.make_folder_soon(os.path.dirname(path))
            self._make_if_missing(path)

    def _make_if_missing(self, path: str) -> bool:
        if self.disk.stat(path) is not None:
            return False
        with contextlib.suppress(FileExistsError):
            self.disk.mkdir(path)
        return True

    def _is_below_root(self, path: str) -> bool:
        return path != self.root and path.startswith(self.root + os.sep)

    def _forget(self, path: str) -> None:
        """Note that a folder is gone; if it is not in `_durable`, no folder below it is."""
        if path not in self._durable:
            return
        # Iterate over a copy, made in one step: other threads and stores may add to the set.
        durable = self._durable.copy()
        self._durable.difference_update(
            folder for folder in durable if folder == path or folder.startswith(path + os.sep)
        )

    # ------------------------------------------------------------------ pieces

    def _scan(self, prefix: str) -> list[tuple[str, bool]]:
        path = self.path(prefix)
        with explained("list", path, prefix):
            try:
                names = self.disk.scan(path)
            except (FileNotFoundError, NotADirectoryError):
                return []
        # A folder sorts like its keys, which continue with a slash.
        return sorted(names, key=lambda item: item[0] + "/" if item[1] else item[0])

    def _walk(self, prefix: str) -> Iterator[tuple[str, bool]]:
        """Yield keys and whether they are folders; temporary folders are not entered."""
        for name, is_folder in self._scan(prefix):
            key = f"{prefix}/{name}" if prefix else name
            if name == LOCK_NAME:
                continue
            yield key, is_folder
            if is_folder and not _is_temporary(name):
                yield from self._walk(key)

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        handle = self.disk.open(path)
        try:
            yield handle
        finally:
            self.disk.close(handle)

    def _read_at(self, handle: int, start: int, length: int) -> bytes:
        buffer = bytearray(length)
        view, done = memoryview(buffer), 0
        while done < length:
            size = self.disk.read_into(handle, view[done:], start + done)
            if not size:
                break
            done += size
        return bytes(view[:done])

    def _read_all(self, path: str) -> bytes:
        with self._opened(path) as handle:
            parts: list[bytes] = []
            offset, wanted = 0, 1 << 16
            while len(part := self._read_at(handle, offset, wanted)) == wanted:
                parts.append(part)
                offset, wanted = offset + wanted, 1 << 20
        return b"".join([*parts, part])

    def _version(self, path: str) -> str | None:
        try:
            return digest_bytes(self._read_all(path))
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def _locked(self, folder: str) -> Iterator[None]:
        path = os.path.join(folder, LOCK_NAME)
        try:
            with self.disk.lock(path, LOCK_TIMEOUT_S):
                yield
        except BlockingIOError:
            raise StoreBusy(f"{path} has been locked for {LOCK_TIMEOUT_S:.0f} s") from None

    def _remove_quietly(self, path: str) -> None:
        # The original error is the one to report; a leftover is litter for a sweep.
        with contextlib.suppress(OSError):
            self.disk.remove(path)


def _is_temporary(key: str) -> bool:
    return key.endswith(TEMPORARY)

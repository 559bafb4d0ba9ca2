"""Uploads and downloads whole folders in parallel, digesting the bytes on the way.

The unit of work is a file when uploading and a digest's block when downloading, so that one large
file uses as many connections as many small ones.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import xxhash

from holdfast.core.checkpoint.manifest import FileEntry
from holdfast.core.names import broken_path_rule, shown
from holdfast.errors import ConfigError, Damaged
from holdfast.storage.base import Buffer, Store, TreeWriter, below
from holdfast.storage.digest import Block, Digester, check_blocks
from holdfast.storage.local.errors import explained
from holdfast.storage.local.files import borrow, give_back
from holdfast.storage.local.store import LocalStore
from holdfast.storage.parallel import Tally, Watch, each

THREADS_LOCAL = 4
THREADS_REMOTE = 16


class _FileSource:
    """A local file as the source of a transfer; it is digested while it is read."""

    def __init__(self, path: str, size: int, tally: Tally) -> None:
        self.path, self.size, self._tally = path, size, tally
        self.digest = ""
        self.size_read = 0

    def chunks(self) -> Iterator[Buffer]:
        digester = Digester()
        with _reading_source(self.path):
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        buffer = borrow()
        try:
            while count := self._read(handle, buffer):
                chunk = buffer[:count]
                digester.update(chunk)
                self._tally.add(count)
                yield chunk
        finally:
            os.close(handle)
            give_back(buffer)
        self.digest, self.size_read = digester.hexdigest(), digester.size

    def _read(self, handle: int, buffer: memoryview) -> int:
        with _reading_source(self.path):
            return os.readv(handle, [buffer])


@contextlib.contextmanager
def _reading_source(path: str) -> Iterator[None]:
    """Raise `ConfigError` for an unreadable source, to tell it from an unwritable store."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}",
            hint="do not change a checkpoint's files before it is saved",
        ) from error


@dataclass(frozen=True, slots=True)
class _LocalFile:
    name: str
    path: str
    size: int


def upload_tree(
    store: Store,
    source: str | os.PathLike[str],
    prefix: str,
    watch: Watch | None = None,
    *,
    staged: bool = False,
) -> tuple[tuple[FileEntry, ...], tuple[str, ...]]:
    """Store every file below the folder `source`; return the files and the empty folders.

    Returns once all is durable; with `staged`, only the bytes are, and moving the files to their
    final place makes the names durable. After a failed or cancelled transfer the caller removes the
    rest with `store.delete_tree(prefix)`.
    """
    watch = watch or Watch()
    local_files, folders = survey(source)
    tree = store.write_tree(prefix)
    entries = _send_all(store, tree, local_files, watch)
    for folder in folders:
        tree.make_folder(folder)
    watch.checked()
    if not staged:
        tree.finish()
    return tuple(sorted(entries, key=lambda entry: entry.path)), tuple(folders)


def upload_files(
    store: Store, source: str | os.PathLike[str], prefix: str, names: Iterable[str]
) -> None:
    """Store only the named files of the folder `source`, replacing existing ones."""
    wanted = set(names)
    tree = store.write_tree(prefix)
    _send_all(store, tree, [file for file in survey(source)[0] if file.name in wanted], Watch())
    tree.finish()


def _send_all(
    store: Store, tree: TreeWriter, files: Sequence[_LocalFile], watch: Watch
) -> list[FileEntry]:
    tally = Tally(watch, sum(file.size for file in files), len(files))
    return each(
        lambda file: _send(tree, file, tally),
        sorted(files, key=lambda file: -file.size),  # the largest first, because they take longest
        THREADS_LOCAL if store.local else THREADS_REMOTE,
    )


def _send(tree: TreeWriter, local: _LocalFile, tally: Tally) -> FileEntry:
    source = _FileSource(local.path, local.size, tally)
    tree.write(local.name, source)
    if source.size_read != local.size:
        raise ConfigError(
            f"{local.path} changed while it was being saved:"
            f" {local.size} bytes before, {source.size_read} read",
            hint="finish writing a checkpoint's files before it is reported",
        )
    tally.add(0, files=1)
    return FileEntry(local.name, local.size, source.digest)


def survey(source: str | os.PathLike[str]) -> tuple[list[_LocalFile], list[str]]:
    """Return all files below a folder, and its empty folders; refuse what cannot be stored."""
    top = os.fspath(source)
    if not os.path.isdir(top):
        problem = "is not a folder" if os.path.exists(top) else "does not exist"
        raise ConfigError(
            f"the checkpoint folder {shown(top)} {problem}",
            hint="write the files first, then name the folder that holds them",
        )
    files: list[_LocalFile] = []
    empty: list[str] = []
    for folder, folder_names, file_names in os.walk(top, followlinks=True, onerror=_raise):
        relative = os.path.relpath(folder, top)
        if len(relative) > 4096:
            raise ConfigError(f"{top} holds a folder that contains itself through a link")
        if not folder_names and not file_names and relative != ".":
            empty.append(_stored_name(relative))
        for name in file_names:
            path = os.path.join(folder, name)
            stored = _stored_name(name if relative == "." else os.path.join(relative, name))
            files.append(_LocalFile(stored, path, _regular_size(path)))
    return files, sorted(empty)


def _raise(error: OSError) -> None:
    raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from error


def _stored_name(relative: str) -> str:
    name = relative.replace(os.sep, "/")
    if broken := broken_path_rule(name):
        raise ConfigError(f"the file {shown(relative)} cannot be stored: {broken}")
    return name


def _regular_size(path: str) -> int:
    try:
        info = os.stat(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if not stat.S_ISREG(info.st_mode):
        raise ConfigError(
            f"{path} is not a regular file", hint="only files and folders can be checkpointed"
        )
    return info.st_size


def download_tree(
    store: Store,
    prefix: str,
    files: Sequence[FileEntry],
    target: str | os.PathLike[str],
    *,
    folders: Iterable[str] = (),
    watch: Watch | None = None,
) -> None:
    """Copy the files to the folder `target`; raise `Damaged` if one is not as it was saved.

    A file without a digest is not checked.
    """
    watch = watch or Watch()
    top = os.fspath(target)
    for folder in sorted({os.path.dirname(entry.path) for entry in files} | set(folders)):
        path = os.path.join(top, folder)
        with explained("make", path, None):
            os.makedirs(path, exist_ok=True)
    for entry in files:
        path = os.path.join(top, entry.path)
        with explained("write", path, None), open(path, "wb"):
            pass  # exists, empty and writable before its blocks arrive in any order
    tally = Tally(watch, sum(entry.size for entry in files), len(files))

    def fetch(block: Block) -> bytes:
        data = store.read(below(prefix, block.file.path), block.start, block.length)
        _write_at(os.path.join(top, block.file.path), data, block.start)
        tally.add(len(data), files=block.is_last)
        return xxhash.xxh3_128_digest(data)

    problems = check_blocks(files, fetch, THREADS_LOCAL if store.local else THREADS_REMOTE)
    if problems:
        raise Damaged(f"{prefix} of {store.url} is damaged: {'; '.join(problems[:5])}")


def _write_at(path: str, data: bytes, offset: int) -> None:
    with explained("write", path, None), open(path, "rb+", buffering=0) as file:
        view = memoryview(data)
        while len(view):
            written = os.pwrite(file.fileno(), view, offset)
            view, offset = view[written:], offset + written


def take_stock(
    store: Store, prefix: str, *, staged: bool = False
) -> tuple[tuple[FileEntry, ...], tuple[str, ...]]:
    """Return the files below `prefix` with their digests, and its empty folders.

    They may have been written without a sync: on a local disk, their bytes and names are durable on
    return; with `staged`, only the bytes are, as in `upload_tree`.
    """
    if store.local is not None:
        return _local_stock(store.local, prefix, staged=staged)
    entries = list(store.entries(prefix))
    if not entries:
        raise ConfigError(f"there are no files at {store.url}/{prefix}")
    files = each(lambda entry: _digested(store, prefix, entry.key), entries, THREADS_REMOTE)
    return tuple(sorted(files, key=lambda entry: entry.path)), ()


def _local_stock(
    store: LocalStore, prefix: str, *, staged: bool
) -> tuple[tuple[FileEntry, ...], tuple[str, ...]]:
    local_files, folders = survey(store.path(prefix))
    names = sorted(file.name for file in local_files)
    files = each(lambda name: _synced(store, prefix, name), names, THREADS_LOCAL)
    if staged:
        return tuple(files), tuple(folders)
    parents = {"", *folders}
    for name in names:
        while "/" in name:
            name = name.rpartition("/")[0]  # noqa: PLW2901  # climbing to the top
            parents.add(name)
    deepest_first = sorted(parents, key=len, reverse=True)
    keys = [f"{prefix}/{folder}".rstrip("/") for folder in deepest_first]
    above = prefix
    while above:  # the folder's own name may not be durable either
        above = above.rpartition("/")[0]
        keys.append(above)
    store.sync_folders(keys)
    return tuple(files), tuple(folders)


def _synced(store: LocalStore, prefix: str, name: str) -> FileEntry:
    key = f"{prefix}/{name}"
    path = store.path(key)
    with explained("sync", path, key):
        handle = store.disk.open(path)
        try:
            store.disk.sync(handle)
        finally:
            store.disk.close(handle)
    return _digested(store, prefix, key)


def _digested(store: Store, prefix: str, key: str) -> FileEntry:
    digester = Digester()
    for chunk in store.stream(key):
        digester.update(chunk)
    return FileEntry(key.removeprefix(f"{prefix}/"), digester.size, digester.hexdigest())

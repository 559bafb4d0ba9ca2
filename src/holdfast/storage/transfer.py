"""Whole folders to, from and in a store: in parallel, with digests made while the bytes go by.

A folder's files are the unit of work on the way in, the digest's blocks on the way out, so that
one large file keeps as many connections busy as many small ones.
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
from holdfast.storage.base import Buffer, Entry, Store, TreeWriter, below
from holdfast.storage.digest import Block, Digester, check_blocks
from holdfast.storage.local.errors import explained
from holdfast.storage.local.files import borrow, give_back
from holdfast.storage.local.store import LocalStore
from holdfast.storage.parallel import Tally, Watch, each

THREADS_LOCAL = 4
THREADS_REMOTE = 16


class _File:
    """A file on this machine's disk as the source of a transfer; digested as it is read."""

    def __init__(self, path: str, size: int, tally: Tally) -> None:
        self.path, self.size, self._tally = path, size, tally
        self.digest = ""
        self.size_read = 0

    def chunks(self) -> Iterator[Buffer]:
        digester = Digester()
        with _read_by_us(self.path):
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
        with _read_by_us(self.path):
            return os.readv(handle, [buffer])


@contextlib.contextmanager
def _read_by_us(path: str) -> Iterator[None]:
    """Tell a source that cannot be read from a store that cannot be written."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}",
            hint="leave a checkpoint's files alone until it is saved",
        ) from error


@dataclass(frozen=True, slots=True)
class _Found:
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
    """Store every file below the folder `source` and return them, and the empty folders.

    Returns once all is durable; with `staged` only the bytes are, and whoever moves them to
    where they belong makes the names so. What a failed or cancelled transfer leaves is the
    caller's to remove with `store.delete_tree(prefix)`.
    """
    watch = watch or Watch()
    found, folders = survey(source)
    tree = store.write_tree(prefix)
    entries = _send_all(store, tree, found, watch)
    for folder in folders:
        tree.make_folder(folder)
    watch.checked()
    if not staged:
        tree.finish()
    return tuple(sorted(entries, key=lambda entry: entry.path)), tuple(folders)


def upload_files(
    store: Store, source: str | os.PathLike[str], prefix: str, names: Iterable[str]
) -> None:
    """Store only the named files of the folder `source`, over whatever is there."""
    wanted = set(names)
    tree = store.write_tree(prefix)
    _send_all(store, tree, [file for file in survey(source)[0] if file.name in wanted], Watch())
    tree.finish()


def _send_all(
    store: Store, tree: TreeWriter, found: Sequence[_Found], watch: Watch
) -> list[FileEntry]:
    tally = Tally(watch, sum(file.size for file in found), len(found))
    return each(
        lambda file: _send(tree, file, tally),
        sorted(found, key=lambda file: -file.size),  # the largest first: they end last
        THREADS_LOCAL if store.local else THREADS_REMOTE,
    )


def _send(tree: TreeWriter, found: _Found, tally: Tally) -> FileEntry:
    file = _File(found.path, found.size, tally)
    tree.write(found.name, file)
    if file.size_read != found.size:
        raise ConfigError(
            f"{found.path} changed while it was being saved:"
            f" {found.size} bytes before, {file.size_read} read",
            hint="finish writing a checkpoint's files before it is reported",
        )
    tally.add(0, files=1)
    return FileEntry(found.name, found.size, file.digest)


def survey(source: str | os.PathLike[str]) -> tuple[list[_Found], list[str]]:
    """Return all files below a folder, and its empty folders; refuse what cannot be kept."""
    top = os.fspath(source)
    if not os.path.isdir(top):
        what = "is not a folder" if os.path.exists(top) else "does not exist"
        raise ConfigError(
            f"the checkpoint folder {shown(top)} {what}",
            hint="write the files first, then name the folder that holds them",
        )
    files: list[_Found] = []
    empty: list[str] = []
    for folder, folder_names, file_names in os.walk(top, followlinks=True, onerror=_raise):
        relative = os.path.relpath(folder, top)
        if len(relative) > 4096:
            raise ConfigError(f"{top} holds a folder that contains itself through a link")
        if not folder_names and not file_names and relative != ".":
            empty.append(_kept_name(relative))
        for name in file_names:
            path = os.path.join(folder, name)
            kept = _kept_name(name if relative == "." else os.path.join(relative, name))
            files.append(_Found(kept, path, _regular_size(path)))
    return files, sorted(empty)


def _raise(error: OSError) -> None:
    raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from error


def _kept_name(relative: str) -> str:
    name = relative.replace(os.sep, "/")
    if broken := broken_path_rule(name):
        raise ConfigError(f"the file {shown(relative)} cannot be kept: {broken}")
    return name


def _regular_size(path: str) -> int:
    try:
        found = os.stat(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(
            f"{path} is not a regular file", hint="only files and folders can be checkpointed"
        )
    return found.st_size


def download_tree(
    store: Store,
    prefix: str,
    files: Sequence[FileEntry],
    target: str | os.PathLike[str],
    *,
    folders: Iterable[str] = (),
    watch: Watch | None = None,
) -> None:
    """Copy the named files to the folder `target`; raise `Damaged` where one is not as saved.

    A file without a digest is taken as it is.
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

    Whoever put them there may not have cared: on a local disk their bytes and names are durable on
    return; with `staged` only the bytes are, and whoever moves them to where they belong makes the
    names so.
    """
    if store.local is not None:
        return _local_stock(store.local, prefix, staged=staged)
    found = list(store.entries(prefix))
    if not found:
        raise ConfigError(f"there are no files at {store.url}/{prefix}")
    files = each(lambda entry: _streamed(store, prefix, entry), found, THREADS_REMOTE)
    return tuple(sorted(files, key=lambda entry: entry.path)), ()


def _local_stock(
    store: LocalStore, prefix: str, *, staged: bool
) -> tuple[tuple[FileEntry, ...], tuple[str, ...]]:
    found, folders = survey(store.path(prefix))
    names = sorted(file.name for file in found)
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
    while above:  # its own name, too, was given by whoever put it there
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
    return _streamed(store, prefix, Entry(key, 0, 0.0))


def _streamed(store: Store, prefix: str, entry: Entry) -> FileEntry:
    digester = Digester()
    for chunk in store.stream(entry.key):
        digester.update(chunk)
    name = entry.key.removeprefix(f"{prefix}/")
    return FileEntry(name, digester.size, digester.hexdigest())

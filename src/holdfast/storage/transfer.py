"""Whole folders to and from a store: in parallel, with digests made while the bytes go by.

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
from holdfast.storage.base import Buffer, Store, TreeWriter
from holdfast.storage.blocks import Block, check_blocks
from holdfast.storage.buffers import borrow, give_back
from holdfast.storage.digest import Digester
from holdfast.storage.local.errors import explained
from holdfast.storage.parallel import Tally, Watch, each
from holdfast.storage.trees import below

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

"""Whole folders to and from a store: in parallel, with digests made while the bytes go by.

A folder's files are the unit of work on the way in, the digest's blocks on the way out, so that
one large file keeps as many connections busy as many small ones.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import xxhash

from holdfast.core.manifest import FileEntry
from holdfast.core.names import broken_path_rule, shown
from holdfast.errors import ConfigError, Damaged, ObjectMissing, TransferCancelled
from holdfast.storage.base import Buffer, Store, TreeWriter
from holdfast.storage.digest import BLOCK_BYTES, Digester, block_count, combine

T = TypeVar("T")
R = TypeVar("R")

READ_BYTES = 1 << 20
THREADS_LOCAL = 4
THREADS_REMOTE = 16


@dataclass(slots=True)
class Progress:
    """How far a transfer has come; passed to the callback after every piece."""

    bytes_total: int
    files_total: int
    bytes_done: int = 0
    files_done: int = 0


ProgressCallback = Callable[[Progress], None]


@dataclass(slots=True)
class Watch:
    """How a caller follows a transfer and calls it off; both are optional."""

    on_progress: ProgressCallback | None = None
    cancel: threading.Event = field(default_factory=threading.Event)

    def checked(self) -> None:
        if self.cancel.is_set():
            raise TransferCancelled("the transfer was called off; nothing of it was committed")


class _Tally:
    """Counts pieces from several threads and tells the watcher."""

    def __init__(self, watch: Watch, bytes_total: int, files_total: int) -> None:
        self._watch, self._lock = watch, threading.Lock()
        self._progress = Progress(bytes_total, files_total)

    def add(self, size: int, files: int = 0) -> None:
        self._watch.checked()
        if self._watch.on_progress is None:
            return
        with self._lock:
            self._progress.bytes_done += size
            self._progress.files_done += files
            self._watch.on_progress(self._progress)


class _File:
    """A file on this machine's disk as the source of a transfer; digested as it is read."""

    def __init__(self, path: str, size: int, tally: _Tally) -> None:
        self.path, self.size, self._tally = path, size, tally
        self.digest = ""
        self.size_read = 0

    def chunks(self) -> Iterator[Buffer]:
        digester = Digester()
        buffer = memoryview(bytearray(max(1, min(READ_BYTES, self.size + 1))))
        handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while count := os.readv(handle, [buffer]):
                chunk = buffer[:count]
                digester.update(chunk)
                self._tally.add(count)
                yield chunk
        finally:
            os.close(handle)
        self.digest, self.size_read = digester.hexdigest(), digester.size


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
    tally = _Tally(watch, sum(file.size for file in found), len(found))
    return _each(
        lambda file: _send(tree, file, tally),
        sorted(found, key=lambda file: -file.size),  # the largest first: they end last
        THREADS_LOCAL if store.local else THREADS_REMOTE,
    )


def _send(tree: TreeWriter, found: _Found, tally: _Tally) -> FileEntry:
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


@dataclass(frozen=True, slots=True)
class _Block:
    file: FileEntry
    index: int

    @property
    def start(self) -> int:
        return self.index * BLOCK_BYTES

    @property
    def length(self) -> int:
        return min(BLOCK_BYTES, self.file.size - self.start)


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
    for folder in {os.path.dirname(entry.path) for entry in files} | set(folders):
        os.makedirs(os.path.join(top, folder), exist_ok=True)
    for entry in files:
        with open(os.path.join(top, entry.path), "wb"):
            pass  # exists, empty and writable before its blocks arrive in any order
    tally = _Tally(watch, sum(entry.size for entry in files), len(files))

    def fetch(block: _Block) -> bytes:
        data = store.read(_key(prefix, block.file.path), block.start, block.length)
        _write_at(os.path.join(top, block.file.path), data, block.start)
        tally.add(len(data))
        return xxhash.xxh3_128_digest(data)

    problems = _check_blocks(files, fetch, THREADS_LOCAL if store.local else THREADS_REMOTE)
    if problems:
        raise Damaged(f"{prefix} of {store.url} is damaged: {'; '.join(problems[:5])}")


def _key(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name


def _write_at(path: str, data: bytes, offset: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        view = memoryview(data)
        while len(view):
            written = os.pwrite(handle, view, offset)
            view, offset = view[written:], offset + written
    finally:
        os.close(handle)


def damage_of(
    store: Store, prefix: str, files: Sequence[FileEntry], watch: Watch | None = None
) -> list[str]:
    """Read every byte of the named files and return what is wrong, one line each; [] if nothing.

    Sizes come first, because they cost almost nothing and tell most of what goes wrong.
    """
    wrong = _each(
        lambda entry: _size_problem(store, prefix, entry),
        files,
        THREADS_LOCAL if store.local else THREADS_REMOTE,
    )
    problems = [problem for problem in wrong if problem]
    if problems:
        return problems
    tally = _Tally(watch or Watch(), sum(entry.size for entry in files), len(files))

    def digest(block: _Block) -> bytes:
        found = _block_digest(store, _key(prefix, block.file.path), block.start, block.length)
        tally.add(block.length)
        return found

    return _check_blocks(files, digest, THREADS_LOCAL if store.local else THREADS_REMOTE)


def _size_problem(store: Store, prefix: str, entry: FileEntry) -> str | None:
    found = store.stat(_key(prefix, entry.path))
    if found is None:
        return f"{entry.path} is missing"
    if found.size != entry.size:
        return f"{entry.path} has {found.size} bytes, {entry.size} were saved"
    return None


def _block_digest(store: Store, key: str, start: int, length: int) -> bytes:
    if store.local is None:
        return xxhash.xxh3_128_digest(store.read(key, start, length))
    return store.local.digest_range(key, start, length)


def _check_blocks(
    files: Sequence[FileEntry], digest: Callable[[_Block], bytes], threads: int
) -> list[str]:
    """Digest every block of every file; return what does not match."""
    blocks = [_Block(entry, i) for entry in files for i in range(block_count(entry.size))]

    def attempt(block: _Block) -> bytes | None:
        try:
            return digest(block)
        except ObjectMissing:
            return None

    found: dict[str, list[bytes | None]] = {}
    for block, value in zip(blocks, _each(attempt, blocks, threads), strict=True):
        found.setdefault(block.file.path, []).append(value)
    problems = []
    for entry in files:
        digests = found[entry.path]
        if None in digests:
            problems.append(f"{entry.path} is missing")
        elif entry.digest and combine([d for d in digests if d is not None]) != entry.digest:
            problems.append(f"{entry.path} does not match its digest")
    return problems


def _each(work: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """Do `work` on all items, in parallel where there are several; the first error ends it."""
    if len(items) <= 1 or threads <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items)), "holdfast-transfer") as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise

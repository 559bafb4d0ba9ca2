"""A store on a filesystem of fsspec or pyarrow that a user passes as `storage_filesystem`.

On a filesystem with files, a put writes to a temporary name and moves it into place; on an object
store, a write is atomic by itself. Conditions are checked before the write, not with it, because
these interfaces offer no more: `fences` is False, and two writers in two processes can both win. A
local filesystem is not used through its wrapper, but as a `LocalStore`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import secrets
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.errors import (
    ConfigError,
    Conflict,
    EndpointWrong,
    ObjectMissing,
    StoreBusy,
    StoreDenied,
    StoreError,
    StoreForked,
)
from holdfast.storage.base import (
    ALWAYS,
    Always,
    Blob,
    Buffer,
    Condition,
    Entry,
    IfAbsent,
    IfVersion,
    ObjectTree,
    Source,
    SourceChunks,
    Store,
    TreeWriter,
)
from holdfast.storage.digest import digest_bytes
from holdfast.storage.foreign.filesystems import (
    ArrowFilesystem,
    Filesystem,
    FsspecFilesystem,
    LocalView,
)
from holdfast.storage.local.errors import store_error
from holdfast.storage.local.store import TEMPORARY, LocalStore

_DENIED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|HTTP status 40[13]"
)
_NETWORKS = {"aiohttp", "httpx", "paramiko", "requests", "urllib3"}
_NO_HOST = re.compile(r"Name or service not known|nodename nor servname|Couldn't resolve host")
_PASSING = re.compile(
    r"NETWORK_CONNECTION|SLOW_DOWN|THROTTL|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|REQUEST_TIMEOUT"
    r"|HTTP status (429|5\d\d)|curlCode|[Tt]imed out|[Cc]onnection"
)


class ForeignStore:
    """The files of a user's filesystem below one of its folders."""

    fences = False
    local = None

    def __init__(self, filesystem: Filesystem, root: str) -> None:
        self.filesystem, self.root = filesystem, root.rstrip("/") or "/"
        self._pid = os.getpid()
        self._lock = threading.Lock()  # makes conditions hold among the threads of a process

    def __reduce__(self) -> tuple[object, ...]:
        return ForeignStore, (self.filesystem, self.root)

    @property
    def url(self) -> str:
        return f"{self.filesystem.scheme}://{self.root}"

    def describe(self) -> dict[str, object]:
        """Return what `reopen` needs: plain data for fsspec, the filesystem object for pyarrow.

        The object is pickled on its way to another process, so it must be picklable.
        """
        if isinstance(self.filesystem, FsspecFilesystem):
            return {"path": self.root, "fsspec": self.filesystem.described()}
        assert isinstance(self.filesystem, ArrowFilesystem)
        try:
            self.filesystem.fs.__reduce_ex__(4)
        except TypeError as error:
            raise ConfigError(
                f"{self.url} cannot be opened by workers: its filesystem cannot be pickled"
                f" ({type(error).__name__}: {error})",
                hint="give storage_path as a URI instead, or a filesystem that can be pickled",
            ) from None
        return {"path": self.root, "filesystem": self.filesystem.fs}

    def child(self, key: str) -> ForeignStore:
        """Return the store rooted at the folder `key`."""
        return ForeignStore(self.filesystem, self._path(key))

    # ------------------------------------------------------------------ reading

    def get(self, key: str) -> Blob:
        data = b"".join(self.stream(key))
        return Blob(data, digest_bytes(data))

    def read(self, key: str, start: int, length: int) -> bytes:
        with self._explained("read", key):
            return self.filesystem.read(self._path(key), start, length)

    def stream(self, key: str, chunk_bytes: int = 1 << 20) -> Iterator[Buffer]:
        with self._explained("read", key):
            yield from self.filesystem.stream(self._path(key), chunk_bytes)

    def stat(self, key: str) -> Entry | None:
        with self._explained("look at", key):
            info = self.filesystem.stat(self._path(key))
        if info is None or info.is_folder:
            return None
        return Entry(key, info.size, info.modified)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        return (entry for entry in self._listed(prefix) if not entry.key.endswith(TEMPORARY))

    def folders(self, prefix: str = "") -> list[str]:
        with self._explained("list", prefix):
            return sorted(self.filesystem.folders(self._path(prefix)))

    # ------------------------------------------------------------------ writing

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        if isinstance(condition, Always):
            self._place(key, (data,))
            return digest_bytes(data)
        with self._lock:
            self._check(key, condition)
            if not (isinstance(condition, IfAbsent) and self._create(key, data)):
                self._place(key, (data,))
        return digest_bytes(data)

    def _check(self, key: str, condition: Condition) -> None:
        match condition:
            case Always():
                return
            case IfAbsent():
                if self.stat(key) is not None:
                    raise Conflict(f"{self._url_of(key)} exists already", key=key)
            case IfVersion(version):
                try:
                    now = self.get(key).version
                except ObjectMissing:
                    now = ""
                if now != version:
                    raise Conflict(f"{self._url_of(key)} has changed since it was read", key=key)

    def _create(self, key: str, data: bytes) -> bool:
        """Write the object exclusively if the filesystem can; return whether it could."""
        if not self.filesystem.writes_whole:
            return False
        with self._explained("write", key):
            try:
                return self.filesystem.create(self._path(key), data)
            except FileExistsError:
                raise Conflict(f"{self._url_of(key)} exists already", key=key) from None

    def _place(self, key: str, chunks: Iterable[Buffer]) -> None:
        path, filesystem = self._path(key), self.filesystem
        with self._explained("write", key):
            if filesystem.writes_whole:
                filesystem.write(path, chunks)
                return
            folder = path.rpartition("/")[0]
            temporary = f"{folder}/.{secrets.token_hex(8)}{TEMPORARY}"
            filesystem.make_folder(folder)
            try:
                filesystem.write(temporary, chunks)
                filesystem.move(temporary, path)
            except BaseException:
                # The original error is the one to report; a leftover is litter.
                with contextlib.suppress(OSError):
                    filesystem.remove(temporary)
                raise

    def delete(self, key: str) -> None:
        with self._explained("delete", key), contextlib.suppress(FileNotFoundError):
            if self.filesystem.stat(self._path(key)) is not None:
                self.filesystem.remove(self._path(key))

    def delete_tree(self, prefix: str) -> None:
        with self._explained("delete", prefix), contextlib.suppress(FileNotFoundError):
            self.filesystem.remove_tree(self._path(prefix))

    def write_tree(self, prefix: str) -> TreeWriter:
        return ObjectTree(self._write_file, prefix)

    def _write_file(self, key: str, source: Source) -> None:
        chunks = SourceChunks(source)
        try:
            self._place(key, chunks)
        except BaseException:
            if chunks.error is not None:
                raise chunks.error from None
            raise

    # ------------------------------------------------------------------ litter, probing

    def litter(self, prefix: str = "") -> Iterator[Entry]:
        return (entry for entry in self._listed(prefix) if entry.key.endswith(TEMPORARY))

    def delete_litter(self, entry: Entry) -> None:
        self.delete(entry.key)

    def probe(self, *, writable: bool) -> None:
        with self._explained("reach", ""):
            info = self.filesystem.stat(self.root)
        if info is not None and not info.is_folder:
            raise StoreError(f"{self.url} is a file, not a folder", hint="name a folder instead")
        if writable:
            key = f".{secrets.token_hex(8)}{TEMPORARY}"
            self.put(key, b"")
            self.delete(key)

    # ------------------------------------------------------------------ pieces

    def _listed(self, prefix: str) -> list[Entry]:
        folder = prefix.rstrip("/")
        with self._explained("list", prefix):
            files = self.filesystem.files(self._path(folder))
        entries = [
            Entry(f"{folder}/{name}" if folder else name, stat.size, stat.modified)
            for name, stat in files
        ]
        return sorted(entries, key=lambda entry: entry.key)

    def _path(self, key: str) -> str:
        return f"{self.root.rstrip('/')}/{key}".rstrip("/") if key else self.root

    def _url_of(self, key: str) -> str:
        return f"{self.url}/{key}".rstrip("/")

    @contextlib.contextmanager
    def _explained(self, verb: str, key: str) -> Iterator[None]:
        """Turn whatever the filesystem raises into a store error."""
        if os.getpid() != self._pid:
            raise StoreForked(
                f"{self.url} was opened in process {self._pid}, and this process is a fork of it",
                hint="start workers with the spawn or forkserver method",
            )
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            raise _store_error(error, verb, self._url_of(key), key) from error


def _store_error(error: Exception, verb: str, url: str, key: str) -> StoreError:
    text = f"{type(error).__name__}: {error}".partition("\n")[0]
    message = f"cannot {verb} {url}: {text}"
    vendor = type(error).__module__.partition(".")[0]
    if "fork-safe" in text:
        return StoreForked(message, key=key, hint="start workers with the spawn method")
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
        kind = ObjectMissing if verb == "read" else StoreError
        return kind(message, key=key)
    if isinstance(error, PermissionError) or _DENIED.search(text):
        return StoreDenied(message, key=key, hint="check the credentials of storage_filesystem")
    if _NO_HOST.search(text):
        return EndpointWrong(message, key=key, hint="check the address of storage_filesystem")
    if (
        isinstance(error, TimeoutError | ConnectionError | socket.gaierror | EOFError)
        or vendor in _NETWORKS
    ):
        return StoreBusy(message, key=key)
    if isinstance(error, OSError) and error.errno is not None:
        return store_error(error, verb, url, key)
    if _PASSING.search(text):
        return StoreBusy(message, key=key)
    return StoreError(message, key=key)


def adopt(filesystem: object, path: str) -> Store:
    """Return the store at `path` of a user's filesystem."""
    base = _local_base(filesystem)
    if base is not None and base:
        view = LocalView(filesystem, base)
        return LocalStore(view.location_of(path), view=view)
    if base is not None:
        return LocalStore(path)
    handler = getattr(filesystem, "handler", None)
    if _is_just(handler, "pyarrow.fs", "FSSpecHandler"):
        return adopt(getattr(handler, "fs", None), path)  # fsspec itself offers more
    if _is_a(filesystem, "pyarrow.fs", "FileSystem"):
        return ForeignStore(ArrowFilesystem(filesystem), path)
    if _is_a(filesystem, "fsspec", "AbstractFileSystem"):
        return ForeignStore(FsspecFilesystem(filesystem), path)
    raise ConfigError(
        f"storage_filesystem={filesystem!r}: must be a filesystem of fsspec or of pyarrow.fs",
        hint="leave it out, and give storage_path as a URI such as s3://bucket/folder",
    )


def _local_base(filesystem: Any) -> str | None:
    """Return the local folder that the filesystem's paths start at, or None.

    Only the plain classes count: a subclass was made to do something differently.
    """
    if _is_just(filesystem, "pyarrow.fs", "LocalFileSystem"):
        return ""
    if _is_just(filesystem, "fsspec.implementations.local", "LocalFileSystem"):
        return ""
    if _is_just(filesystem, "pyarrow.fs", "SubTreeFileSystem"):
        base = _local_base(filesystem.base_fs)
        return None if base is None else os.path.join(base, filesystem.base_path)
    if _is_just(filesystem, "fsspec.implementations.dirfs", "DirFileSystem"):
        base = _local_base(filesystem.fs)
        return None if base is None else os.path.join(base, filesystem.path)
    if _is_just(filesystem, "pyarrow.fs", "PyFileSystem"):
        return _local_base(getattr(filesystem.handler, "fs", None))
    if _is_just(filesystem, "fsspec.implementations.arrow", "ArrowFSWrapper"):
        return _local_base(filesystem.fs)
    return None


def _is_a(value: object, module: str, name: str) -> bool:
    kind = _class(module, name)
    return kind is not None and isinstance(value, kind)


def _is_just(value: object, module: str, name: str) -> bool:
    return type(value) is _class(module, name)


def _class(module: str, name: str) -> type | None:
    # A value of a class can only exist if its module is loaded, so nothing is imported for it. The
    # exception is pyarrow: unpickling one of its filesystems loads only an inner module.
    if module == "pyarrow.fs" and "pyarrow._fs" in sys.modules:
        importlib.import_module(module)
    return getattr(sys.modules.get(module), name, None)

"""Adapters for filesystems of fsspec and pyarrow, behind one small protocol.

An adapter only translates and raises the library's own errors; `ForeignStore` builds the promises
of a store on top and turns the errors into ours.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from holdfast.storage.base import Buffer
from holdfast.storage.local.disk import Stat

_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "tos", "r2"}
_PATTERN = re.compile(r"[*?\[\]]")
_TIME_NAMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")


class Filesystem(Protocol):
    """Files under paths; a missing one raises `FileNotFoundError`, or is None in `stat`."""

    @property
    def scheme(self) -> str:
        """The scheme of the URL shown to users."""
        ...

    @property
    def writes_whole(self) -> bool:
        """Whether a write is atomic, as in an object store, where a move would be a copy."""
        ...

    def stat(self, path: str) -> Stat | None: ...
    def read(self, path: str, start: int, length: int) -> bytes: ...
    def stream(self, path: str, chunk_bytes: int) -> Iterator[bytes]: ...
    def create(self, path: str, data: bytes) -> bool:
        """Write a file that must not exist; return False if the filesystem cannot do that."""
        ...

    def write(self, path: str, chunks: Iterable[Buffer]) -> None: ...
    def move(self, old: str, new: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def make_folder(self, path: str) -> None: ...
    def files(self, path: str) -> list[tuple[str, Stat]]:
        """Return every file below a folder, with its relative path; [] if there is none."""
        ...

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders directly below; [] if there is none."""
        ...


class FsspecFilesystem:
    """A filesystem of fsspec."""

    def __init__(self, fs: Any) -> None:
        self.fs = fs
        names = (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
        self.scheme: str = names[0]
        # fsspec's default `mv` copies and deletes, which is no better than writing in place.
        has_move = getattr(type(fs), "mv", None) is not _fsspec_base().mv
        self.writes_whole = bool(_OBJECT_STORES & set(names)) or not has_move

    def described(self) -> dict[str, Any]:
        """Return plain data from which fsspec makes the same filesystem."""
        described: dict[str, Any] = self.fs.to_dict(include_password=True)
        return described

    def stat(self, path: str) -> Stat | None:
        self.fs.invalidate_cache(path.rpartition("/")[0])
        try:
            return _fsspec_stat(self.fs.info(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, path: str, start: int, length: int) -> bytes:
        return bytes(self.fs.cat_file(path, start=start, end=start + length))

    def stream(self, path: str, chunk_bytes: int) -> Iterator[bytes]:
        with self.fs.open(path, "rb") as file:
            while chunk := file.read(chunk_bytes):
                yield chunk

    def create(self, path: str, data: bytes) -> bool:
        inner = getattr(self.fs, "_pipe_file", self.fs.pipe_file)
        if "mode" not in inspect.signature(inner).parameters:
            return False
        self.fs.pipe_file(path, data, mode="create")
        return True

    def write(self, path: str, chunks: Iterable[Buffer]) -> None:
        if isinstance(chunks, tuple):
            self.fs.pipe_file(path, b"".join(chunks))
            return
        # Closing a file commits it, so the rest of a broken source must be discarded first.
        file = self.fs.open(path, "wb", autocommit=False)
        try:
            for chunk in chunks:
                file.write(bytes(chunk))
        except BaseException:
            file.close()
            file.discard()
            raise
        file.close()
        file.commit()

    def move(self, old: str, new: str) -> None:
        self.fs.mv(old, new)

    def remove(self, path: str) -> None:
        self.fs.rm_file(path)

    def remove_tree(self, path: str) -> None:
        if not _PATTERN.search(path):
            self.fs.rm(path, recursive=True)
            return
        # fsspec would treat the path as a pattern, and remove everything that matches it.
        infos = self.fs.find(path, withdirs=True, detail=True)
        for name in sorted(infos, key=len, reverse=True):  # contents before their folder
            if infos[name]["type"] != "directory":
                self.fs.rm_file(name)
            elif not self.writes_whole:
                self.fs.rmdir(name)
        if not self.writes_whole and self.fs.isdir(path):
            self.fs.rmdir(path)

    def make_folder(self, path: str) -> None:
        self.fs.makedirs(path, exist_ok=True)

    def files(self, path: str) -> list[tuple[str, Stat]]:
        self.fs.invalidate_cache()
        infos = self.fs.find(path, detail=True)
        top = len(self._plain(path)) + 1
        return [(self._plain(name)[top:], _fsspec_stat(info)) for name, info in infos.items()]

    def folders(self, path: str) -> list[str]:
        self.fs.invalidate_cache()
        try:
            infos = self.fs.ls(path, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        inside = f"{self._plain(path)}/"
        return [
            name[len(inside) :]
            for info in infos
            if info["type"] == "directory"
            and (name := self._plain(info["name"])).startswith(inside)
        ]

    def _plain(self, path: str) -> str:
        plain: str = self.fs._strip_protocol(path)  # noqa: SLF001  # what fsspec offers for this
        return plain.rstrip("/")


class ArrowFilesystem:
    """A filesystem of pyarrow."""

    def __init__(self, fs: Any) -> None:
        self.fs = fs
        inner = fs
        while hasattr(inner, "base_fs"):
            inner = inner.base_fs
        # The type of a wrapped filesystem is `py::fsspec+sftp`, or ends with a tuple of names.
        self.scheme: str = re.findall(r"[A-Za-z][\w.-]*", inner.type_name)[-1]
        self.writes_whole = self.scheme in _OBJECT_STORES or self.scheme == "mock"

    def stat(self, path: str) -> Stat | None:
        return _arrow_stat(self.fs.get_file_info(path))

    def read(self, path: str, start: int, length: int) -> bytes:
        with self.fs.open_input_file(path) as file:
            size = file.size()
            if start >= size:
                return b""
            return bytes(file.read_at(min(length, size - start), start))

    def stream(self, path: str, chunk_bytes: int) -> Iterator[bytes]:
        with self.fs.open_input_stream(path) as file:
            while chunk := file.read(chunk_bytes):
                yield chunk

    def create(self, path: str, data: bytes) -> bool:
        return False

    def write(self, path: str, chunks: Iterable[Buffer]) -> None:
        try:
            with self.fs.open_output_stream(path) as file:
                for chunk in chunks:
                    file.write(chunk)
        except BaseException:
            # Closing has published a partial file; pyarrow offers no way to cancel a write.
            with contextlib.suppress(OSError):
                self.fs.delete_file(path)
            raise

    def move(self, old: str, new: str) -> None:
        self.fs.move(old, new)

    def remove(self, path: str) -> None:
        self.fs.delete_file(path)

    def remove_tree(self, path: str) -> None:
        self.fs.delete_dir(path)

    def make_folder(self, path: str) -> None:
        self.fs.create_dir(path, recursive=True)

    def files(self, path: str) -> list[tuple[str, Stat]]:
        top = len(path.rstrip("/")) + 1
        return [(name[top:], stat) for name, stat in self._below(path) if not stat.is_folder]

    def folders(self, path: str) -> list[str]:
        entries = self._below(path, recursive=False)
        return [name.rstrip("/").rpartition("/")[2] for name, stat in entries if stat.is_folder]

    def _below(self, path: str, *, recursive: bool = True) -> Iterator[tuple[str, Stat]]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(path, recursive=recursive, allow_not_found=True)
        for info in self.fs.get_file_info(selector):
            stat = _arrow_stat(info)
            if stat is not None:
                yield info.path, stat


def _fsspec_base() -> Any:
    from fsspec import AbstractFileSystem

    return AbstractFileSystem


def _fsspec_stat(info: dict[str, Any]) -> Stat:
    modified = next((info[name] for name in _TIME_NAMES if info.get(name) is not None), 0.0)
    return Stat(info["type"] == "directory", int(info.get("size") or 0), _seconds(modified))


def _arrow_stat(info: Any) -> Stat | None:
    from pyarrow.fs import FileType

    if info.type == FileType.NotFound:
        return None
    return Stat(info.type == FileType.Directory, info.size or 0, _seconds(info.mtime or 0.0))


def _seconds(moment: object) -> float:
    """Return seconds since 1970 from any of the forms filesystems use; 0 if it is none."""
    if isinstance(moment, int | float):
        return float(moment)
    if isinstance(moment, str):
        with contextlib.suppress(ValueError):
            moment = datetime.fromisoformat(moment)
    if isinstance(moment, datetime):
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return 0.0


@dataclass(frozen=True, slots=True)
class LocalView:
    """A filesystem such as pyarrow's SubTreeFileSystem, and the local folder its paths start at.

    Files are accessed directly on the local disk. Users are shown the filesystem's own paths,
    because that is how they look for them.
    """

    filesystem: object
    base: str

    def path_of(self, location: str) -> str:
        """Return the filesystem's path for a local path."""
        return os.path.relpath(location, self.base)

    def location_of(self, path: str) -> str:
        """Return the local path for the filesystem's `path`."""
        return os.path.join(self.base, path.lstrip("/"))

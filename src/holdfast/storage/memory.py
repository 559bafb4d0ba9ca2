"""A store in the memory of this process, for tests and short-lived runs."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.errors import Conflict, ObjectMissing, StoreError, StoreForked
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
    TreeWriter,
    folders_of,
)

_spaces: dict[str, _Space] = {}
_spaces_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class _Held:
    data: bytes
    version: str
    modified: float


class _Space:
    """The objects of one `memory://` name, shared by all stores of that name in this process."""

    def __init__(self) -> None:
        self.objects: dict[str, _Held] = {}
        self.lock = threading.Lock()
        self.versions = itertools.count(1)
        self.pid = os.getpid()


class MemoryStore:
    """Objects in a dictionary; stores made with the same `name` share them."""

    fences = True
    local = None

    def __init__(self, name: str | None = None, prefix: str = "") -> None:
        if name is None:
            self._space = _Space()
        else:
            with _spaces_lock:
                self._space = _spaces.setdefault(name, _Space())
        self._name, self._prefix = name, prefix.strip("/")

    def __reduce__(self) -> tuple[object, ...]:
        if self._name is None:
            raise StoreError("a memory store without a name cannot be sent to another process")
        return _rejoin, (self._name, self._prefix, self._space.pid)

    @property
    def url(self) -> str:
        return f"memory://{self._name or ''}" + (f"/{self._prefix}" if self._prefix else "")

    def get(self, key: str) -> Blob:
        held = self._held(key)
        return Blob(held.data, held.version)

    def read(self, key: str, start: int, length: int) -> bytes:
        return self._held(key).data[start : start + length]

    def stream(self, key: str, chunk_bytes: int = 1 << 20) -> Iterator[Buffer]:
        data = self._held(key).data
        for start in range(0, len(data), chunk_bytes):
            yield data[start : start + chunk_bytes]

    def stat(self, key: str) -> Entry | None:
        held = self._objects().get(self._full(key))
        return None if held is None else Entry(key, len(held.data), held.modified)

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        objects, full = self._objects(), self._full(key)
        with self._space.lock:
            held = objects.get(full)
            match condition:
                case Always():
                    pass
                case IfAbsent():
                    if held is not None:
                        raise Conflict(f"{self.url}/{key} exists already", key=key)
                case IfVersion(version):
                    if held is None or held.version != version:
                        raise Conflict(f"{self.url}/{key} has changed since it was read", key=key)
            version = str(next(self._space.versions))
            objects[full] = _Held(bytes(data), version, time.time())
        return version

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        below = self._full(prefix.rstrip("/") + "/" if prefix else "")
        with self._space.lock:
            matching = sorted((k, h) for k, h in self._objects().items() if k.startswith(below))
        cut = len(self._full(""))
        for full, held in matching:
            yield Entry(full[cut:], len(held.data), held.modified)

    def folders(self, prefix: str = "") -> list[str]:
        return folders_of(self.entries(prefix), prefix)

    def delete(self, key: str) -> None:
        with self._space.lock:
            self._objects().pop(self._full(key), None)

    def delete_tree(self, prefix: str) -> None:
        for entry in self.entries(prefix):
            self.delete(entry.key)

    def write_tree(self, prefix: str) -> TreeWriter:
        return ObjectTree(self._write_file, prefix)

    def litter(self, prefix: str = "") -> Iterator[Entry]:
        return iter(())  # a put cannot be left unfinished

    def delete_litter(self, entry: Entry) -> None:
        self.delete(entry.key)

    def probe(self, *, writable: bool) -> None:
        self._objects()

    def _write_file(self, key: str, source: Source) -> None:
        self.put(key, b"".join(bytes(chunk) for chunk in source.chunks()))

    def _full(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix else key

    def _held(self, key: str) -> _Held:
        held = self._objects().get(self._full(key))
        if held is None:
            raise ObjectMissing(f"there is no {self.url}/{key}", key=key)
        return held

    def _objects(self) -> dict[str, _Held]:
        if os.getpid() != self._space.pid:
            raise StoreForked(
                f"{self.url} lives in the memory of process {self._space.pid}; this is its fork",
                hint="use a folder or an object store where several processes must see the data",
            )
        return self._space.objects


def _rejoin(name: str, prefix: str, pid: int) -> MemoryStore:
    """Unpickle a store, which works only in the process that holds its memory."""
    if os.getpid() != pid:
        raise StoreError(
            f"memory://{name} lives in the memory of process {pid}; this is process {os.getpid()}",
            hint="use a folder or an object store where several processes must see the data",
        )
    return MemoryStore(name, prefix)

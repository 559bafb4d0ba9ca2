"""The `Store` protocol: objects under slash-separated keys, and what its implementations share.

A key is relative to the store's root, has no leading slash, no empty part and no `..`. Layers above
do not know the backend, except through `Store.local`, which offers what only a local disk can:
renames, appends and paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from holdfast.storage.local.store import LocalStore

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Always:
    """Put unconditionally."""


@dataclass(frozen=True, slots=True)
class IfAbsent:
    """Put only if no object has the key."""


@dataclass(frozen=True, slots=True)
class IfVersion:
    """Put only if the object is still the one that `get` returned with this version."""

    version: str


Condition: TypeAlias = Always | IfAbsent | IfVersion
ALWAYS = Always()
IF_ABSENT = IfAbsent()


@dataclass(frozen=True, slots=True)
class Blob:
    """The bytes of an object, and its version for `IfVersion`."""

    data: bytes
    version: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One object in a listing; `modified` is seconds since 1970 by the store's clock."""

    key: str
    size: int
    modified: float


class Source(Protocol):
    """A file to be stored; it can be read again from the start after a failed try."""

    @property
    def size(self) -> int: ...

    def chunks(self) -> Iterable[Buffer]:
        """Yield all bytes in order; a yielded buffer is valid until the next one is requested."""
        ...


class TreeWriter(Protocol):
    """Receives the files of one directory; `write` may be called from several threads."""

    def write(self, name: str, source: Source) -> None:
        """Store one file, named relative to the tree; an existing one is replaced."""
        ...

    def make_folder(self, name: str) -> None:
        """Create an empty folder if the backend has folders; otherwise do nothing."""
        ...

    def finish(self) -> None:
        """Return once everything written is durable under its name."""
        ...


class Store(Protocol):
    """Whole objects under slash-separated keys.

    Every `put` is atomic: a reader sees the old object or the new one, never a part. When `put`
    has returned, the object survives the loss of this process and, where the backend can promise
    it, of this machine. Folders come and go with the objects below them. A key that is put with
    `IfVersion` must always be put with a condition: an unconditional put may go unnoticed.

    Methods raise `ObjectMissing`, `Conflict`, `StoreBusy`, `StoreDenied`, `StoreFull`,
    `StoreForked` or plain `StoreError`, never a vendor's error.
    """

    @property
    def url(self) -> str:
        """The location of the root, as a user would write it, without secrets."""
        ...

    @property
    def fences(self) -> bool:
        """Whether conditional puts are atomic, so that two writers cannot both win."""
        ...

    @property
    def local(self) -> LocalStore | None:
        """The local disk behind this store, or None."""
        ...

    def get(self, key: str) -> Blob:
        """Return the whole object and its version."""
        ...

    def read(self, key: str, start: int, length: int) -> bytes:
        """Return `length` bytes from `start`; fewer only where the object ends."""
        ...

    def stream(self, key: str, chunk_bytes: int = 1 << 20) -> Iterator[Buffer]:
        """Yield the object in order; a yielded buffer is valid until the next one is requested."""
        ...

    def stat(self, key: str) -> Entry | None:
        """Return the entry of one object, or None if it does not exist."""
        ...

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        """Store `data` if `condition` holds, else raise `Conflict`; return the new version."""
        ...

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """Yield every complete object below the folder `prefix`, sorted by key."""
        ...

    def folders(self, prefix: str = "") -> list[str]:
        """Return the names of the folders directly below `prefix`, sorted."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; a missing object is not an error."""
        ...

    def delete_tree(self, prefix: str) -> None:
        """Remove the folder `prefix` with its contents; a missing folder is not an error."""
        ...

    def write_tree(self, prefix: str) -> TreeWriter:
        """Return a writer for many files below the folder `prefix`."""
        ...

    def litter(self, prefix: str = "") -> Iterator[Entry]:
        """Yield the leftovers of unfinished puts below `prefix`: temporary files, parts."""
        ...

    def delete_litter(self, entry: Entry) -> None:
        """Remove an entry that `litter` yielded; a missing one is not an error."""
        ...

    def probe(self, *, writable: bool) -> None:
        """Raise a clear error now if the root cannot be reached, read or (if asked) written."""
        ...


class ObjectTree:
    """A tree on a store where each file is durable as soon as it is written."""

    def __init__(self, write_file: Callable[[str, Source], None], prefix: str) -> None:
        self._write_file, self._prefix = write_file, prefix.rstrip("/")

    def write(self, name: str, source: Source) -> None:
        self._write_file(below(self._prefix, name), source)

    def make_folder(self, name: str) -> None:
        """Do nothing: folders come and go with the objects below them."""

    def finish(self) -> None:
        """Do nothing: every file is durable already."""


def folders_of(entries: Iterable[Entry], prefix: str) -> list[str]:
    """Return the names of the folders directly below `prefix` that hold these entries."""
    start = len(prefix.rstrip("/")) + 1 if prefix else 0
    names = {entry.key[start:].split("/", 1)[0] for entry in entries if "/" in entry.key[start:]}
    return sorted(names)


def below(prefix: str, name: str) -> str:
    """Return the key of `name` in the folder `prefix`; an empty prefix is the root."""
    return f"{prefix}/{name}" if prefix else name


class SourceChunks:
    """Iterates over a source as vendors need it: buffers stay valid, each pass starts anew.

    `error` is what the source raised, if that ended a write. The vendor raises it too, but then an
    unreadable source file looks just like a missing object.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[bytes]:
        self.error = None
        try:
            for chunk in self._source.chunks():
                yield bytes(chunk)
        except Exception as error:
            self.error = error
            raise

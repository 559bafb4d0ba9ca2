"""`child`: the store rooted at a folder of another store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from holdfast.storage.base import (
    ALWAYS,
    Blob,
    Buffer,
    Condition,
    Entry,
    Store,
    TreeWriter,
)
from holdfast.storage.local.store import LocalStore
from holdfast.storage.retry import Retrying


def child(store: Store, key: str) -> Store:
    """Return the store rooted at the folder `key`; an empty key gives the same store."""
    if not key.strip("/"):
        return store
    match store:
        case Retrying():
            return store.around(child(store.store, key))
        case LocalStore():
            return store.child(key)
        case PrefixStore():
            return PrefixStore(store.store, f"{store.prefix}/{key}")
        case _ if hasattr(store, "child"):
            below: Store = store.child(key)
            return below
        case _:
            return PrefixStore(store, key)


class PrefixStore:
    """A folder of a store that has no `child` of its own: every key gets a prefix."""

    local = None

    def __init__(self, store: Store, prefix: str) -> None:
        self.store, self.prefix = store, prefix.strip("/")

    @property
    def url(self) -> str:
        return f"{self.store.url.rstrip('/')}/{self.prefix}"

    @property
    def fences(self) -> bool:
        return self.store.fences

    def get(self, key: str) -> Blob:
        return self.store.get(self._full(key))

    def read(self, key: str, start: int, length: int) -> bytes:
        return self.store.read(self._full(key), start, length)

    def stream(self, key: str, chunk_bytes: int = 1 << 20) -> Iterator[Buffer]:
        return self.store.stream(self._full(key), chunk_bytes)

    def stat(self, key: str) -> Entry | None:
        entry = self.store.stat(self._full(key))
        return None if entry is None else self._cut(entry)

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        return self.store.put(self._full(key), data, condition)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        return map(self._cut, self.store.entries(self._full(prefix)))

    def folders(self, prefix: str = "") -> list[str]:
        return self.store.folders(self._full(prefix))

    def delete(self, key: str) -> None:
        self.store.delete(self._full(key))

    def delete_tree(self, prefix: str) -> None:
        self.store.delete_tree(self._full(prefix))

    def write_tree(self, prefix: str) -> TreeWriter:
        return self.store.write_tree(self._full(prefix))

    def litter(self, prefix: str = "") -> Iterator[Entry]:
        return map(self._cut, self.store.litter(self._full(prefix)))

    def delete_litter(self, entry: Entry) -> None:
        self.store.delete_litter(replace(entry, key=self._full(entry.key)))

    def probe(self, *, writable: bool) -> None:
        self.store.probe(writable=writable)

    def _full(self, key: str) -> str:
        return f"{self.prefix}/{key}".rstrip("/")

    def _cut(self, entry: Entry) -> Entry:
        return replace(entry, key=entry.key[len(self.prefix) + 1 :])

"""A store that fails as the story says: busy, broken, slow, or the last thing a process does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from holdfast.errors import StoreBusy, StoreError, StoreFull
from holdfast.storage import locate
from holdfast.storage.base import (
    ALWAYS,
    Blob,
    Buffer,
    Condition,
    Entry,
    ObjectTree,
    Source,
    Store,
    TreeWriter,
)
from holdfast.storage.memory import MemoryStore
from holdfast.storage.retry import Retrying, RetryPolicy
from tests.simulation.clock import SimClock
from tests.simulation.disk import disk_store
from tests.simulation.workers import SimWorker
from tests.simulation.world import World

T = TypeVar("T")
_SCHEME = "simulated:"
_WRITES = ("put", "delete", "delete_tree")
_SLOW_SHARE = 0.3
_opened: dict[str, tuple[World, Store]] = {}
_reopen = locate.reopen


def _find(name: str) -> Store:
    return _opened[name][1]


class SimStore:
    """Objects in memory, with the story's faults between them and whoever asks.

    Outside the simulation, where nobody acts, there are none.
    """

    fences = True
    local = None
    url = "memory://simulated"

    def __init__(self, world: World) -> None:
        self.inner = MemoryStore()
        self.world = world
        self._name = f"{_SCHEME}{id(self)}"
        _opened[self._name] = world, self

    def __reduce__(self) -> tuple[object, ...]:
        return _find, (self._name,)  # to this very process, where it is

    def describe(self) -> dict[str, Any]:
        """Return what `reopen` finds this store by."""
        return {"path": self._name}

    # ------------------------------------------------------------------ the interface

    def get(self, key: str) -> Blob:
        return self._operate("get", key, lambda: self.inner.get(key))

    def read(self, key: str, start: int, length: int) -> bytes:
        return self._operate("read", key, lambda: self.inner.read(key, start, length))

    def stream(self, key: str, chunk_bytes: int = 1 << 20) -> Iterator[Buffer]:
        return self._operate("stream", key, lambda: self.inner.stream(key, chunk_bytes))

    def stat(self, key: str) -> Entry | None:
        return self._operate("stat", key, lambda: self.inner.stat(key))

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        return self._operate("put", key, lambda: self.inner.put(key, data, condition))

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        return self._operate("list", prefix, lambda: iter(list(self.inner.entries(prefix))))

    def folders(self, prefix: str = "") -> list[str]:
        return self._operate("list", prefix, lambda: self.inner.folders(prefix))

    def delete(self, key: str) -> None:
        self._operate("delete", key, lambda: self.inner.delete(key))

    def delete_tree(self, prefix: str) -> None:
        for entry in self.entries(prefix):  # one by one, so that it can be cut off in the middle
            self.delete(entry.key)

    def write_tree(self, prefix: str) -> TreeWriter:
        return ObjectTree(self._write_file, prefix)

    def _write_file(self, key: str, source: Source) -> None:
        self.put(key, b"".join(bytes(chunk) for chunk in source.chunks()))

    def litter(self, prefix: str = "") -> Iterator[Entry]:
        return iter(())

    def delete_litter(self, entry: Entry) -> None:
        self.delete(entry.key)

    def probe(self, *, writable: bool) -> None:
        self._operate("probe", "", lambda: None)

    # ------------------------------------------------------------------ what goes wrong

    def _operate(self, verb: str, key: str, do: Callable[[], T]) -> T:
        stage, world = self.world.stage, self.world
        if stage.current is None:
            return do()
        stage.check()
        if world.is_quiet:
            return do()
        what = f"{verb} {key}"
        slow_s = world.story.setting.store_s
        if slow_s and world.dice.random() < _SLOW_SHARE:
            stage.sleep(world.dice.random() * slow_s, f"the store to {what}")
        owner = stage.current.process.owner
        if isinstance(owner, SimWorker) and verb == "put":
            owner.hold_up(what)
        if stage.now < world.store_is_down_until:
            world.truth.store_troubles += 1
            raise StoreBusy(f"the store is down: {what}", key=key)
        fault = world.next_operation()
        if fault is None:
            return do()
        world.tell(f"{stage.current}: {fault.kind}: {what}")
        return self._go_wrong(fault.kind, fault.length_s, verb, what, do)

    def _go_wrong(self, kind: str, length_s: float, verb: str, what: str, do: Callable[[], T]) -> T:
        stage = self.world.stage
        assert stage.current is not None
        if kind in ("busy", "error") and (kind == "busy" or verb not in _WRITES):
            raise StoreBusy(f"the store is busy: {what}")
        if kind == "error":
            if verb == "put":
                raise StoreFull(f"the store is full: {what}")
            raise StoreError(f"the store fails: {what}")
        if kind == "slow":
            stage.sleep(length_s, f"the slow store to {what}")
        if kind == "killed before":
            self.world.kill(stage.current.process)
            stage.check()
        done = do()
        if kind == "killed after":
            self.world.kill(stage.current.process)
            stage.check()
        if kind == "answer lost" or (kind == "error after" and verb not in _WRITES):
            raise StoreBusy(f"no answer came: {what}")
        if kind == "error after":
            raise StoreError(f"the answer makes no sense: {what}")
        return done


def make_store(world: World) -> tuple[Store, Store]:
    """Return the store of a run, and the same without faults."""
    if not world.story.setting.is_local:
        store = SimStore(world)
        return store, store.inner
    tapped, plain = disk_store(world)
    _opened[tapped.root] = world, tapped
    return tapped, plain


def forget(store: Store) -> None:
    """Let go of a store: nobody will reopen it any more."""
    _opened.pop(locate.describe(store)["path"], None)


def patient(world: World, store: Store) -> Store:
    """Return the store as drivers and workers have it: one that waits out what passes."""
    policy = RetryPolicy(deadline_s=world.story.setting.retry_s)
    return Retrying(store, policy, clock=SimClock(world.stage), draw=world.dice.random)


def reopen(described: Mapping[str, Any]) -> Store:
    """Stand in for `holdfast.storage.locate.reopen`, which knows only stores that are real."""
    found = _opened.get(described["path"])
    if found is None:
        return _reopen(described)
    return locate.child(patient(*found), described.get("below", ""))

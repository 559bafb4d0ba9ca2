"""A store that waits out passing faults: exponential back-off, full jitter, a deadline.

Everything that raises `StoreBusy` is tried again, whatever the backend. What a second try could get
wrong is handled here and nowhere else: a conditional put whose first answer was lost, a stream that
broke off in the middle, a listing that had begun.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, runtime_checkable

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import ConfigError, Conflict, ObjectMissing, StoreBusy, StoreError
from holdfast.storage.base import (
    ALWAYS,
    Blob,
    Buffer,
    Condition,
    Entry,
    Source,
    Store,
    TreeWriter,
)
from holdfast.storage.local import LocalStore

T = TypeVar("T")

PROBE_DEADLINE_S = 2.0  # whoever probes wants to know now


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How long a passing fault is waited out.

    Attributes:
        wait_first_s: The first pause is drawn from zero to this; the next ones from twice as much.
        wait_max_s: No pause is longer than this.
        deadline_s: Give up this long after the first try, or after the last progress of a stream.
        tries_min: Never give up before this many tries, however long each of them took.
    """

    wait_first_s: float = 0.1
    wait_max_s: float = 10.0
    deadline_s: float = 120.0
    tries_min: int = 3

    def __post_init__(self) -> None:
        wrong = [
            f"{name}={value}: must not be negative"
            for name in ("wait_first_s", "wait_max_s", "deadline_s")
            if not (value := getattr(self, name)) >= 0
        ]
        if self.tries_min < 1:
            wrong.append(f"tries_min={self.tries_min}: one try is the least there can be")
        if wrong:
            raise ConfigError("RetryPolicy cannot work:\n  - " + "\n  - ".join(wrong))


@runtime_checkable
class Resumable(Protocol):
    """A stream that knows how to go on with the very object it began with."""

    def resumed(self) -> Iterator[Buffer]: ...


class Retrying:
    """The same store, but a passing fault ends a call only when the policy's deadline has passed.

    The error raised then is the last one, with how often and how long it was tried. After such an
    error a put may or may not have happened.
    """

    def __init__(
        self,
        store: Store,
        policy: RetryPolicy | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.store, self.policy = store, policy if policy is not None else RetryPolicy()
        self._clock, self._draw = clock, draw

    def __reduce__(self) -> tuple[object, ...]:
        return Retrying, (self.store, self.policy)  # with the clock of wherever it arrives

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def fences(self) -> bool:
        return self.store.fences

    @property
    def local(self) -> LocalStore | None:
        return self.store.local

    def around(self, store: Store) -> Retrying:
        """Return another store with the patience of this one."""
        return Retrying(store, self.policy, clock=self._clock, draw=self._draw)

    # ------------------------------------------------------------------ reading

    def get(self, key: str) -> Blob:
        return self._call(lambda: self.store.get(key))

    def read(self, key: str, start: int, length: int) -> bytes:
        return self._call(lambda: self.store.read(key, start, length))

    def stat(self, key: str) -> Entry | None:
        return self._call(lambda: self.store.stat(key))

    def folders(self, prefix: str = "") -> list[str]:
        return self._call(lambda: self.store.folders(prefix))

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        tries, last = self._tries(), ""
        while True:
            try:
                for entry in self.store.entries(prefix):
                    if entry.key > last:  # sorted, so what came before was yielded before
                        last = entry.key
                        yield entry
            except StoreBusy as error:
                tries.wait_after(error)
            else:
                return

    def stream(self, key: str, chunk_bytes: int = 1 << 20) -> Iterator[Buffer]:
        tries, offset = self._tries(), 0
        chunks = iter(self.store.stream(key, chunk_bytes))
        begun = None if isinstance(chunks, Resumable) else self.stat(key)
        while True:
            try:
                chunk = next(chunks, None)
            except StoreBusy as error:
                tries.wait_after(error)
                if isinstance(chunks, Resumable):
                    chunks = iter(chunks.resumed())
                else:
                    chunks = self._rest(key, offset, chunk_bytes, begun)
                continue
            if chunk is None:
                return
            tries = self._tries()  # it moves: patience begins anew
            offset += len(chunk)
            yield chunk

    def _rest(
        self, key: str, offset: int, chunk_bytes: int, begun: Entry | None
    ) -> Iterator[Buffer]:
        if self.store.stat(key) != begun:
            raise StoreError(
                f"{self.url}/{key} was replaced while it was read", key=key, hint="read it again"
            )
        while chunk := self.store.read(key, offset, chunk_bytes):
            yield chunk
            offset += len(chunk)

    # ------------------------------------------------------------------ writing

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        tries = self._tries()
        while True:
            try:
                return self.store.put(key, data, condition)
            except StoreBusy as error:
                tries.wait_after(error)
            except Conflict:
                # After a lost answer, what stands in our way may be our own first try.
                version = self._version_of(key, data) if tries.count else None
                if version is None:
                    raise
                return version

    def _version_of(self, key: str, data: bytes) -> str | None:
        """Return the version of the object if it holds exactly `data`."""
        try:
            found = self.get(key)
        except ObjectMissing:
            return None
        return found.version if found.data == data else None

    def delete(self, key: str) -> None:
        self._call(lambda: self.store.delete(key))

    def delete_tree(self, prefix: str) -> None:
        self._call(lambda: self.store.delete_tree(prefix))

    def write_tree(self, prefix: str) -> TreeWriter:
        return _RetryingTree(self._call(lambda: self.store.write_tree(prefix)), self._call)

    # ------------------------------------------------------------------ litter, probing

    def litter(self, prefix: str = "") -> Iterator[Entry]:
        return iter(self._call(lambda: list(self.store.litter(prefix))))

    def delete_litter(self, entry: Entry) -> None:
        self._call(lambda: self.store.delete_litter(entry))

    def probe(self, *, writable: bool) -> None:
        soon = min(PROBE_DEADLINE_S, self.policy.deadline_s)
        policy = replace(self.policy, deadline_s=soon, tries_min=1)
        self._call(lambda: self.store.probe(writable=writable), policy)

    # ------------------------------------------------------------------ pieces

    def _tries(self, policy: RetryPolicy | None = None) -> _Tries:
        return _Tries(policy if policy is not None else self.policy, self._clock, self._draw)

    def call(self, work: Callable[[], T]) -> T:
        """Do what changes nothing with the patience of this store, and return its result."""
        return self._call(work)

    def _call(self, work: Callable[[], T], policy: RetryPolicy | None = None) -> T:
        tries = self._tries(policy)
        while True:
            try:
                return work()
            except StoreBusy as error:
                tries.wait_after(error)


def patiently(store: Store, work: Callable[[], T]) -> T:
    """Do work on the disk below `store`, with such patience as the store has; return its result."""
    return store.call(work) if isinstance(store, Retrying) else work()


class _Tries:
    """Counts the tries of one call, waits between them, and says when to give up."""

    def __init__(self, policy: RetryPolicy, clock: Clock, draw: Callable[[], float]) -> None:
        self._policy, self._clock, self._draw = policy, clock, draw
        self._begun = clock.monotonic()
        self.count = 0

    def wait_after(self, error: StoreBusy) -> None:
        """Wait before the next try, or raise `error` if there is to be none."""
        policy = self._policy
        elapsed_s = self._clock.monotonic() - self._begun
        bound_s = min(policy.wait_max_s, policy.wait_first_s * 2.0 ** min(self.count, 64))
        self.count += 1
        wait_s = bound_s * self._draw()
        if self.count >= policy.tries_min and elapsed_s + wait_s > policy.deadline_s:
            times = "once" if self.count == 1 else f"{self.count} times over {elapsed_s:.1f} s"
            raise StoreBusy(
                f"{error.message} (tried {times})",
                key=error.key,
                hint=error.hint or "check the store, then give the same command again",
            ) from error
        self._clock.sleep(wait_s)


class _RetryingTree:
    """A tree whose every file is sent again from its start after a passing fault."""

    def __init__(self, tree: TreeWriter, call: Callable[[Callable[[], None]], None]) -> None:
        self._tree, self._call = tree, call

    def write(self, name: str, source: Source) -> None:
        self._call(lambda: self._tree.write(name, source))

    def make_folder(self, name: str) -> None:
        self._call(lambda: self._tree.make_folder(name))

    def finish(self) -> None:
        self._call(self._tree.finish)

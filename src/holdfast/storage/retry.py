"""A store that waits out passing faults: exponential back-off, full jitter, a deadline.

Everything that raises `StoreBusy` is tried again, whatever the backend. How long depends on whether
a run has begun there, and what people hear of it is the work of `contact`. What a second try could
get wrong is handled here and nowhere else: a conditional put whose first answer was lost, a stream
that broke off in the middle, a listing that had begun.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, runtime_checkable

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import (
    ConfigError,
    Conflict,
    EndpointWrong,
    ObjectMissing,
    StoreBusy,
    StoreError,
)
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
from holdfast.storage.contact import Contact, longer
from holdfast.storage.local.store import LocalStore

log = logging.getLogger(__name__)

T = TypeVar("T")

PROBE_DEADLINE_S = 2.0  # whoever probes wants to know now
NAP_S = 1.0
START_WAIT_MAX_S = 2.0  # likewise, where there is not much time


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How long a passing fault is waited out.

    Attributes:
        wait_first_s: The first pause is drawn from zero to this; the next ones from twice as much.
        wait_max_s: No pause is longer than this.
        deadline_s: Give up this long after the first try, or after the last progress of a stream;
            None never.
        tries_min: Never give up before this many tries, however long each of them took.
        start_s: Until a run has begun (`begin_run`), a call ends after this long, whatever it waits
            for; None if the beginning is like the rest.
    """

    wait_first_s: float = 0.1
    wait_max_s: float = 10.0
    deadline_s: float | None = 120.0
    tries_min: int = 3
    start_s: float | None = None

    def __post_init__(self) -> None:
        wrong = [
            f"{name}={value}: must not be negative"
            for name in ("wait_first_s", "wait_max_s", "deadline_s", "start_s")
            if (value := getattr(self, name)) is not None and not value >= 0
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
        contact: Contact | None = None,
    ) -> None:
        self.store, self.policy = store, policy if policy is not None else RetryPolicy()
        self._clock, self._draw = clock, draw
        self.contact = contact if contact is not None else Contact(clock)

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
        return Retrying(
            store, self.policy, clock=self._clock, draw=self._draw, contact=self.contact
        )

    def within(self, deadline_s: float) -> Retrying:
        """Return the same store with a limit of its own, whatever is going on."""
        policy = replace(self.policy, deadline_s=deadline_s, start_s=None)
        return Retrying(self.store, policy, clock=self._clock, draw=self._draw)

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
        self._must_answer()
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
                tries.done()
                return

    def stream(self, key: str, chunk_bytes: int = 1 << 20) -> Iterator[Buffer]:
        self._must_answer()
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
            tries.done()
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
        failures = 0

        def put() -> str:
            nonlocal failures
            try:
                return self.store.put(key, data, condition)
            except StoreBusy:
                failures += 1
                raise
            except Conflict:
                # After a lost answer, what stands in our way may be our own first try.
                version = self._version_of(key, data) if failures else None
                if version is None:
                    raise
                return version

        return self._call(put)

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
        policy = self.policy
        if self._start_s() is None:
            limit_s = policy.deadline_s
            soon_s = PROBE_DEADLINE_S if limit_s is None else min(PROBE_DEADLINE_S, limit_s)
            policy = replace(policy, deadline_s=soon_s, tries_min=1)
        self._call(lambda: self.store.probe(writable=writable), policy)

    # ------------------------------------------------------------------ pieces

    def _start_s(self) -> float | None:
        """Return how long an answer may take before a run has begun; None if one has."""
        return self.contact.limit_s(self.policy.start_s)

    def _must_answer(self) -> None:
        """Raise soon if nobody is there, before anything is asked that may take its time."""
        start_s = self._start_s()
        if start_s is not None and not self.contact.has_just_answered():
            endpoint = getattr(self.store, "endpoint", None)
            where = f"{self.url} at {endpoint}" if endpoint else self.url
            self.contact.answer_within(start_s, where, lambda: self._repeat(self._look))

    def _look(self) -> None:
        try:
            self.store.probe(writable=False)
        except StoreBusy:
            raise
        except StoreError as error:
            log.debug("an answer, if not the one that was hoped for: %s", error)

    def _tries(self, policy: RetryPolicy | None = None) -> _Tries:
        policy = policy if policy is not None else self.policy
        return _Tries(policy, self.contact, self._clock, self._draw)

    def call(self, work: Callable[[], T]) -> T:
        """Do what changes nothing with the patience of this store, and return its result."""
        return self._call(work)

    def _call(self, work: Callable[[], T], policy: RetryPolicy | None = None) -> T:
        self._must_answer()
        return self._repeat(work, policy)

    def _repeat(self, work: Callable[[], T], policy: RetryPolicy | None = None) -> T:
        tries = self._tries(policy)
        while True:
            try:
                result = work()
            except StoreBusy as error:
                tries.wait_after(error)
            except BaseException:
                tries.done()
                raise
            else:
                tries.done()
                return result


def begin_run(store: Store, at_stake: Callable[[], str] | None = None) -> None:
    """From now on wait without end where `store` does not answer, and say then what is at stake."""
    if isinstance(store, Retrying):
        store.contact.begin_run(at_stake)


def end_run(store: Store, limit_s: float = float("inf")) -> None:
    """Wait for `store` no longer than at the beginning, or than `limit_s` if that is less.

    From any thread or signal handler; a call that waits already ends within a second.
    """
    if isinstance(store, Retrying):
        store.contact.end_run(limit_s)


def within(store: Store, deadline_s: float) -> Store:
    """Return the same store, of which every call gives up after a while."""
    if not isinstance(store, Retrying):
        return store
    return store.within(deadline_s)


def patiently(store: Store, work: Callable[[], T]) -> T:
    """Do work on the disk below `store`, with such patience as the store has; return its result."""
    return store.call(work) if isinstance(store, Retrying) else work()


class _Tries:
    """Counts the tries of one call, waits between them, and says when to give up."""

    def __init__(
        self, policy: RetryPolicy, contact: Contact, clock: Clock, draw: Callable[[], float]
    ) -> None:
        self._policy, self._contact, self._clock, self._draw = policy, contact, clock, draw
        self._begun = clock.monotonic()
        self.count = 0

    def done(self) -> None:
        """Take in that there was an answer, whatever it was."""
        if self.count or self._policy.start_s is not None:
            self._contact.settled(self)

    def wait_after(self, error: StoreBusy) -> None:
        """Wait before the next try, or raise `error` if there is to be none."""
        policy = self._policy
        start_s = self._contact.limit_s(policy.start_s)
        is_start = start_s is not None
        limit_s, tries_min = policy.deadline_s, policy.tries_min
        wait_max_s = policy.wait_max_s
        if is_start:
            limit_s, tries_min = start_s, 1
            wait_max_s = min(wait_max_s, START_WAIT_MAX_S)
        elapsed_s = self._clock.monotonic() - self._begun
        bound_s = min(wait_max_s, policy.wait_first_s * 2.0 ** min(self.count, 64))
        self.count += 1
        wait_s = bound_s * self._draw()
        is_too_late = limit_s is not None and elapsed_s + wait_s > limit_s
        is_hopeless = is_start and isinstance(error, EndpointWrong)
        if is_hopeless or (self.count >= tries_min and is_too_late):
            self._contact.gave_up(self)
            times = "once" if self.count == 1 else f"{self.count} times over {elapsed_s:.1f} s"
            hint = error.hint or "check the store, then give the same command again"
            if is_start and limit_s is not None and not is_hopeless:
                hint = longer(limit_s)
            raise type(error)(
                f"{error.message} (tried {times})", key=error.key, hint=hint
            ) from error
        self._contact.failed(self, error, elapsed_s + wait_s, limit_s)
        self._sleep(wait_s, is_start=is_start)

    def _sleep(self, wait_s: float, *, is_start: bool) -> None:
        if is_start or self._policy.start_s is None:
            self._clock.sleep(wait_s)
            return
        while wait_s > 0 and self._contact.is_in_run:  # or whoever leaves would wait for it
            self._clock.sleep(min(wait_s, NAP_S))
            wait_s -= NAP_S


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

"""A store that retries transient faults: exponential back-off, full jitter, a deadline.

Every call that raises `StoreBusy` is tried again, whatever the backend. How long depends on whether
a run has begun; `contact` logs outages. What a second try could get wrong is handled here alone: a
conditional put whose first answer was lost, a stream or a listing that broke off in the middle.
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
from holdfast.storage.contact import Contact, timeout_hint
from holdfast.storage.local.store import LocalStore

log = logging.getLogger(__name__)

T = TypeVar("T")

PROBE_DEADLINE_S = 2.0  # a probe is meant to answer soon
NAP_S = 1.0
START_WAIT_MAX_S = 2.0  # the longest pause before a run has begun


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How long transient faults are retried.

    Attributes:
        wait_first_s: The first pause is drawn from zero to this; the bound doubles each time.
        wait_max_s: No pause is longer than this.
        deadline_s: Give up this long after the first try, or after the last progress of a stream;
            None means never.
        tries_min: Never give up before this many tries, however long they took.
        start_s: Until a run has begun (`begin_run`), a call ends after this long; None if
            `deadline_s` applies from the start.
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
            wrong.append(f"tries_min={self.tries_min}: must be at least 1")
        if wrong:
            raise ConfigError("RetryPolicy cannot work:\n  - " + "\n  - ".join(wrong))


@runtime_checkable
class Resumable(Protocol):
    """A stream that can continue with the very object it began with."""

    def resumed(self) -> Iterator[Buffer]: ...


class Retrying:
    """The same store, but a transient fault ends a call only after the policy's deadline.

    The error raised then is the last one, with the number and duration of tries. After it, a put
    may or may not have happened.
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
        return Retrying, (self.store, self.policy)  # the receiving process uses its own clock

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
        """Return `store` with the retries of this one."""
        return Retrying(
            store, self.policy, clock=self._clock, draw=self._draw, contact=self.contact
        )

    def within(self, deadline_s: float) -> Retrying:
        """Return the same store with a deadline that holds during runs too."""
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
                    if entry.key > last:  # sorted, so smaller keys have been yielded
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
            tries = self._tries()  # there was progress: the deadline begins anew
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
                # If an answer was lost, the conflict may be with our own first try.
                version = self._version_of(key, data) if failures else None
                if version is None:
                    raise
                return version

        return self._call(put)

    def _version_of(self, key: str, data: bytes) -> str | None:
        """Return the version of the object if it holds exactly `data`."""
        try:
            blob = self.get(key)
        except ObjectMissing:
            return None
        return blob.version if blob.data == data else None

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
        """Return how long an answer may take; None once a run has begun."""
        return self.contact.limit_s(self.policy.start_s)

    def _must_answer(self) -> None:
        """Raise soon if storage is unreachable, before a request that may take long."""
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
            log.debug("storage answers, with an error: %s", error)

    def _tries(self, policy: RetryPolicy | None = None) -> _Tries:
        policy = policy if policy is not None else self.policy
        return _Tries(policy, self.contact, self._clock, self._draw)

    def call(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, which changes nothing, with the retries of this store."""
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
    """From now on retry calls on `store` for ever, and warn with what is at stake."""
    if isinstance(store, Retrying):
        store.contact.begin_run(at_stake)


def end_run(store: Store, limit_s: float = float("inf")) -> None:
    """Use the limit from before the run, or `limit_s` if that is less.

    Safe in any thread or signal handler; a call that is waiting ends within a second.
    """
    if isinstance(store, Retrying):
        store.contact.end_run(limit_s)


def within(store: Store, deadline_s: float) -> Store:
    """Return the same store, whose calls give up after `deadline_s`."""
    return store.within(deadline_s) if isinstance(store, Retrying) else store


def with_retries(store: Store, work: Callable[[], T]) -> T:
    """Return the result of `work` on the disk of `store`, with the store's retries, if any."""
    return store.call(work) if isinstance(store, Retrying) else work()


class _Tries:
    """Counts the tries of one call, waits between them, and decides when to give up."""

    def __init__(
        self, policy: RetryPolicy, contact: Contact, clock: Clock, draw: Callable[[], float]
    ) -> None:
        self._policy, self._contact, self._clock, self._draw = policy, contact, clock, draw
        self._begun = clock.monotonic()
        self.count = 0

    def done(self) -> None:
        """Note that there was an answer, whatever it was."""
        if self.count or self._policy.start_s is not None:
            self._contact.settled(self)

    def wait_after(self, error: StoreBusy) -> None:
        """Wait before the next try, or raise `error` if there is none."""
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
                hint = timeout_hint(limit_s)
            raise type(error)(
                f"{error.message} (tried {times})", key=error.key, hint=hint
            ) from error
        self._contact.failed(self, error, elapsed_s + wait_s, limit_s)
        self._sleep(wait_s, is_start=is_start)

    def _sleep(self, wait_s: float, *, is_start: bool) -> None:
        if is_start or self._policy.start_s is None:
            self._clock.sleep(wait_s)
            return
        while wait_s > 0 and self._contact.is_in_run:  # so that an ending run does not wait
            self._clock.sleep(min(wait_s, NAP_S))
            wait_s -= NAP_S


class _RetryingTree:
    """A tree in which each file is sent again from its start after a transient fault."""

    def __init__(self, tree: TreeWriter, call: Callable[[Callable[[], None]], None]) -> None:
        self._tree, self._call = tree, call

    def write(self, name: str, source: Source) -> None:
        self._call(lambda: self._tree.write(name, source))

    def make_folder(self, name: str) -> None:
        self._call(lambda: self._tree.make_folder(name))

    def finish(self) -> None:
        self._call(self._tree.finish)

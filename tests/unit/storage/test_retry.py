"""Retries of transient faults: how long, how often, and what a second try must not get wrong."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler

import pytest

from holdfast.errors import ConfigError, Conflict, ObjectMissing, StoreBusy, StoreDenied, StoreError
from holdfast.storage.base import (
    ALWAYS,
    IF_ABSENT,
    Blob,
    Buffer,
    Condition,
    Entry,
    IfVersion,
    Source,
)
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.retry import Retrying, RetryPolicy
from holdfast.testing.sources import Refilled
from tests.clocks import FakeClock

POLICY = RetryPolicy(wait_first_s=1.0, wait_max_s=8.0, deadline_s=60.0)


class Flaky(MemoryStore):
    """A store that is busy the next `faults` times it is asked anything.

    With `acts_first`, a put happens before its answer is lost.
    """

    def __init__(self, faults: int = 0, *, acts_first: bool = False) -> None:
        super().__init__()
        self.faults, self.acts_first = faults, acts_first
        self.asked = 0

    def stumble(self) -> None:
        self.asked += 1
        if self.faults:
            self.faults -= 1
            raise StoreBusy("cannot reach it: 503", key="a")

    def get(self, key: str) -> Blob:
        self.stumble()
        return super().get(key)

    def stat(self, key: str) -> Entry | None:
        self.stumble()
        return super().stat(key)

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        if self.acts_first:
            version = super().put(key, data, condition)
            self.stumble()
            return version
        self.stumble()
        return super().put(key, data, condition)

    def delete(self, key: str) -> None:
        self.stumble()
        super().delete(key)

    def folders(self, prefix: str = "") -> list[str]:
        self.stumble()
        return super().folders(prefix)

    def litter(self, prefix: str = "") -> Iterator[Entry]:
        self.stumble()
        return super().litter(prefix)

    def probe(self, *, writable: bool) -> None:
        self.stumble()

    def _write_file(self, key: str, source: Source) -> None:
        chunks = iter(source.chunks())
        first = bytes(next(chunks))
        self.stumble()
        super().put(key, first + b"".join(bytes(chunk) for chunk in chunks))


def patient(store: MemoryStore, policy: RetryPolicy = POLICY) -> tuple[Retrying, FakeClock]:
    clock = FakeClock(1_000.0)
    return Retrying(store, policy, clock=clock, draw=lambda: 1.0), clock


def test_every_kind_of_call_is_tried_again() -> None:
    flaky = Flaky()
    store, _ = patient(flaky)
    store.put("a/b", b"1")

    for call in (
        lambda: store.get("a/b"),
        lambda: store.stat("a/b"),
        lambda: store.put("a/b", b"1"),
        store.folders,
        lambda: list(store.litter()),
        lambda: store.write_tree("tree").write("file", Refilled(3 << 20)),
        lambda: store.delete("a/b"),
        lambda: store.probe(writable=True),
    ):
        flaky.asked, flaky.faults = 0, 1
        call()
        assert flaky.asked == 2

    assert store.get("tree/file").data == Refilled(3 << 20).whole()


def test_pauses_double_up_to_a_bound() -> None:
    store, clock = patient(Flaky(faults=6))

    with pytest.raises(ObjectMissing):
        store.get("a")

    assert clock.slept_s == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_pauses_are_drawn_from_zero_to_the_bound() -> None:
    draws = iter([0.5, 0.0, 0.25])
    clock = FakeClock(1_000.0)
    store = Retrying(Flaky(faults=3), POLICY, clock=clock, draw=lambda: next(draws))

    with pytest.raises(ObjectMissing):
        store.get("a")

    assert clock.slept_s == [0.5, 0.0, 1.0]


def test_the_last_error_says_how_often_and_how_long_it_was_tried() -> None:
    store, clock = patient(Flaky(faults=1_000))

    with pytest.raises(StoreBusy) as caught:
        store.get("a")

    assert caught.value.message == "cannot reach it: 503 (tried 10 times over 55.0 s)"
    assert caught.value.key == "a"
    assert caught.value.hint == "check the store, then give the same command again"
    assert sum(clock.slept_s) <= 60.0


def test_slow_failures_do_not_use_up_the_tries_that_are_due() -> None:
    """Each try takes longer than the whole deadline, as with a server that never answers."""
    flaky = Flaky(faults=1_000)
    store, clock = patient(flaky)
    stumble = flaky.stumble

    def slowly() -> None:
        clock.time += 100.0
        stumble()

    flaky.stumble = slowly  # type: ignore[method-assign]
    with pytest.raises(StoreBusy, match="tried 3 times over"):
        store.get("a")


def test_other_errors_are_not_tried_again() -> None:
    class Denying(Flaky):
        def get(self, key: str) -> Blob:
            self.asked += 1
            raise StoreDenied("no")

    denying = Denying()
    store, clock = patient(denying)

    with pytest.raises(StoreDenied):
        store.get("a")

    assert denying.asked == 1
    assert clock.slept_s == []


def test_a_probe_gives_up_soon() -> None:
    store, clock = patient(Flaky(faults=1_000))

    with pytest.raises(StoreBusy):
        store.probe(writable=True)

    assert sum(clock.slept_s) <= 2.0


# ---------------------------------------------------------------------- conditional puts


def test_a_put_whose_answer_was_lost_is_recognised_as_ours() -> None:
    store, _ = patient(Flaky(faults=1, acts_first=True))

    version = store.put("a", b"ours", IF_ABSENT)

    assert store.get("a") == Blob(b"ours", version)


def test_a_replacement_whose_answer_was_lost_is_recognised_as_ours() -> None:
    flaky = Flaky(acts_first=True)
    store, _ = patient(flaky)
    old = store.put("a", b"old")
    flaky.faults = 1

    version = store.put("a", b"ours", IfVersion(old))

    assert store.get("a") == Blob(b"ours", version)


def test_after_a_lost_answer_another_writers_object_is_still_a_conflict() -> None:
    flaky = Flaky(faults=1)
    MemoryStore.put(flaky, "a", b"theirs")
    store, _ = patient(flaky)

    with pytest.raises(Conflict):
        store.put("a", b"ours", IF_ABSENT)

    assert store.get("a").data == b"theirs"


def test_a_conflict_at_the_first_try_is_a_conflict_even_with_equal_bytes() -> None:
    """Two writers may write the same; only one of them has created it."""
    store, _ = patient(Flaky())
    store.put("a", b"same", IF_ABSENT)

    with pytest.raises(Conflict):
        store.put("a", b"same", IF_ABSENT)


def test_a_conflict_with_what_has_gone_since_is_a_conflict() -> None:
    class Vanishing(Flaky):
        def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
            self.stumble()
            raise Conflict("it was there a moment ago", key=key)

    store, _ = patient(Vanishing(faults=1))

    with pytest.raises(Conflict):
        store.put("a", b"ours", IF_ABSENT)


# ---------------------------------------------------------------------- streams and listings


class Breaking(MemoryStore):
    """A store whose streams break off once, after some bytes."""

    def __init__(self, after_bytes: int) -> None:
        super().__init__()
        self.after_bytes: int | None = after_bytes
        self.reads: list[tuple[int, int]] = []
        self.replace_with: bytes | None = None

    def stream(self, key: str, chunk_bytes: int = 1 << 20) -> Iterator[Buffer]:
        sent = 0
        for chunk in super().stream(key, chunk_bytes):
            if self.after_bytes is not None and sent >= self.after_bytes:
                self.after_bytes = None
                if self.replace_with is not None:
                    self.put(key, self.replace_with)
                raise StoreBusy("the connection broke")
            yield chunk
            sent += len(chunk)

    def read(self, key: str, start: int, length: int) -> bytes:
        self.reads.append((start, length))
        return super().read(key, start, length)


@pytest.mark.parametrize("after_bytes", [0, 10, 90])
def test_a_broken_stream_goes_on_where_it_was(after_bytes: int) -> None:
    breaking = Breaking(after_bytes)
    store, _ = patient(breaking)
    data = bytes(range(100))
    store.put("a", data)

    streamed = b"".join(bytes(chunk) for chunk in store.stream("a", 10))

    assert streamed == data
    assert breaking.reads[0] == (after_bytes, 10)


def test_a_stream_does_not_go_on_with_another_object() -> None:
    breaking = Breaking(after_bytes=50)
    store, _ = patient(breaking)
    store.put("a", b"1" * 100)
    breaking.replace_with = b"2" * 101

    with pytest.raises(StoreError, match="was replaced while it was read"):
        list(store.stream("a", 10))


def test_a_stream_that_can_resume_itself_is_asked_to() -> None:
    class Half:
        def __init__(self, left: list[bytes]) -> None:
            self.left = left

        def __iter__(self) -> Half:
            return self

        def __next__(self) -> bytes:
            if not self.left:
                raise StoreBusy("the connection broke")
            return self.left.pop(0)

        def resumed(self) -> Iterator[Buffer]:
            return iter([b"c", b"d"])

    class Resuming(MemoryStore):
        def stream(self, key: str, chunk_bytes: int = 1 << 20) -> Iterator[Buffer]:
            return Half([b"a", b"b"])

    store, _ = patient(Resuming())

    assert list(store.stream("a")) == [b"a", b"b", b"c", b"d"]


def test_a_stream_that_moves_is_given_new_patience() -> None:
    """It breaks after every chunk, for longer in all than one deadline."""

    class Halting(MemoryStore):
        def stream(self, key: str, chunk_bytes: int = 1 << 20) -> Iterator[Buffer]:
            yield b"0"
            raise StoreBusy("the connection broke")

        def read(self, key: str, start: int, length: int) -> bytes:
            clock.time += 50.0
            self.was_busy = not getattr(self, "was_busy", True)
            if self.was_busy:
                raise StoreBusy("the connection broke")
            return super().read(key, start, 1)

    store, clock = patient(Halting(), RetryPolicy(deadline_s=60.0, tries_min=1))
    store.put("a", b"0123456789")

    assert b"".join(bytes(chunk) for chunk in store.stream("a", 1)) == b"0123456789"


def test_a_broken_listing_yields_every_entry_once() -> None:
    class Breaks(MemoryStore):
        left = 3

        def entries(self, prefix: str = "") -> Iterator[Entry]:
            for number, entry in enumerate(super().entries(prefix)):
                if self.left and number == 4 - self.left:
                    self.left -= 1
                    raise StoreBusy("the connection broke")
                yield entry

    store, _ = patient(Breaks())
    for name in "abcde":
        store.put(name, b"")

    assert [entry.key for entry in store.entries()] == ["a", "b", "c", "d", "e"]


# ---------------------------------------------------------------------- the wrapper itself


def test_what_the_store_is_shows_through(tmp_path: object) -> None:
    local = LocalStore(str(tmp_path))
    store = Retrying(local)

    assert (store.url, store.fences, store.local) == (local.url, True, local)


def test_it_travels_with_its_policy_and_without_its_clock(tmp_path: object) -> None:
    store = Retrying(LocalStore(str(tmp_path)), POLICY, clock=FakeClock(1_000.0), draw=lambda: 1.0)

    there = ForkingPickler.loads(ForkingPickler.dumps(store))

    assert there.policy == POLICY
    assert there.url == store.url


def test_a_policy_that_cannot_work_says_all_that_is_wrong() -> None:
    with pytest.raises(ConfigError) as caught:
        RetryPolicy(wait_first_s=-1, deadline_s=float("nan"), tries_min=0)

    assert caught.value.message.splitlines() == [
        "RetryPolicy cannot work:",
        "  - wait_first_s=-1: must not be negative",
        "  - deadline_s=nan: must not be negative",
        "  - tries_min=0: must be at least 1",
    ]

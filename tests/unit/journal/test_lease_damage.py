"""Leases that are damaged, or of a newer format."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest

from holdfast.errors import FormatTooNew, RunHeld
from holdfast.journal.lease import (
    LEASES,
    Lease,
    LeaseRecord,
    beat_key,
    lease_key,
    read_lease,
    take_lease,
)
from holdfast.journal.owner import Owner
from holdfast.storage.base import Store
from holdfast.storage.memory import MemoryStore
from holdfast.storage.records import seal
from tests.clocks import FakeClock
from tests.unit.journal import holders
from tests.unit.journal.holders import LIFE_S, someone_elsewhere


def take(store: Store, clock: FakeClock, owner: Owner | None = None) -> Lease:
    return take_lease(store, run="run 'r'", clock=clock, owner=owner, time_to_live_s=LIFE_S)


@pytest.fixture
def real_time(clock: FakeClock) -> FakeClock:
    """The store says when a file was changed by a real clock."""
    clock.time = time.time()
    return clock


def cut(data: bytes) -> bytes:
    return data[:-5]


def emptied(_: bytes) -> bytes:
    return b""


def replaced(_: bytes) -> bytes:
    return seal({"format": 1, "epoch": 1}) + b"\n"


def flip(data: bytes) -> bytes:
    return data[:20] + bytes([data[20] ^ 4]) + data[21:]


@pytest.mark.parametrize("damage", [cut, flip, emptied, replaced])
def test_a_lease_that_cannot_be_read_may_be_held_until_it_has_surely_run_out(
    store: Store, real_time: FakeClock, damage: Callable[[bytes], bytes]
) -> None:
    lease = take(store, real_time)
    lease.release(journal_next=3)
    beat = beat_key(1, lease.record.token)
    store.put(beat, damage(store.get(beat).data))

    with pytest.raises(RunHeld) as caught:
        take(store, real_time)

    assert caught.value.message == "run 'r' may be held: the lease of epoch 1 cannot be read"
    assert "until it has certainly expired" in (caught.value.hint or "")


def test_a_lease_that_cannot_be_read_is_warned_of_when_it_is_replaced(
    store: Store, real_time: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    store.put(beat_key(1, take(store, real_time).record.token), b"garbage")
    real_time.time += 31

    with caplog.at_level(logging.WARNING):
        lease = take(store, real_time)

    assert lease.epoch == 2
    assert "the lease of epoch 1 cannot be read" in caplog.text


def test_a_lease_in_the_place_of_another_does_not_count(store: Store, real_time: FakeClock) -> None:
    """That of an earlier epoch, long released, must not pass for that of a live holder."""
    first = take(store, real_time)
    first.release(journal_next=0)
    second = take(store, real_time)
    released = store.get(beat_key(1, first.record.token)).data
    store.put(beat_key(2, second.record.token), released)

    with pytest.raises(RunHeld, match="epoch 2 cannot be read"):
        take(store, real_time)


def test_an_epoch_whose_lease_is_gone_is_not_taken_twice(
    store: Store, real_time: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """What was journaled under it shows that it was taken, and when it was last alive."""
    holders.take(store, real_time).leave()
    real_time.time = time.time()
    holder = holders.take(store, real_time)
    holder.note("a")
    store.delete(lease_key(2))
    store.delete(beat_key(2, holder.lease.record.token))
    real_time.time = time.time()

    with pytest.raises(RunHeld, match="epoch 2 cannot be read"):
        take(store, real_time)
    real_time.time += 31
    with caplog.at_level(logging.WARNING):
        lease = take(store, real_time)

    assert lease.epoch == 3
    assert "the lease of epoch 2 cannot be read" in caplog.text


def test_a_holder_writes_its_damaged_lease_anew(store: Store, clock: FakeClock) -> None:
    lease = take(store, clock)
    store.put(beat_key(1, lease.record.token), b"garbage")

    lease.renew(journal_next=3)

    assert read_lease(store, 1) == lease.record


@pytest.mark.parametrize("is_gone", [False, True])
def test_who_has_taken_a_run_is_known_by_its_heartbeat_too(
    store: Store, clock: FakeClock, *, is_gone: bool
) -> None:
    lease = take(store, clock)
    if is_gone:
        store.delete(lease_key(1))
    else:
        store.put(lease_key(1), b"garbage")

    lease.renew(journal_next=3)

    assert read_lease(store, 1) == lease.record


def test_a_lease_of_a_newer_format_is_refused_with_what_to_do(
    store: Store, clock: FakeClock
) -> None:
    store.put(lease_key(1), seal({"format": 2, "who": "knows"}) + b"\n")

    with pytest.raises(FormatTooNew) as caught:
        take(store, clock)

    assert "lease format 2, this version reads up to 1" in caught.value.message
    assert caught.value.hint == "use the version of Holdfast that wrote it, or a newer one"


@pytest.mark.parametrize("name", ["notes.txt", "x.json", "-1.json", "00000009.json.bak"])
def test_files_that_are_no_leases_are_left_alone(store: Store, clock: FakeClock, name: str) -> None:
    store.put(f"{LEASES}/{name}", b"whatever")

    assert take(store, clock).epoch == 1


def test_a_lease_at_rest_has_the_names_that_are_promised_to_plain_tools(clock: FakeClock) -> None:
    record = take(MemoryStore(), clock, someone_elsewhere()).record

    assert {**record.to_record(), "token": "t"} == {
        "format": 1,
        "epoch": 1,
        "owner": {
            "host": "gpu-3",
            "pid": 4121,
            "started": 77.0,
            "place": "another-boot/pid:[1]",
            "user": "ann",
        },
        "token": "t",
        "taken": clock.time,
        "renewed": clock.time,
        "time_to_live_s": 30.0,
        "released": False,
        "journal_next": 0,
        "beats": 1,
    }
    assert LeaseRecord.from_record(record.to_record()) == record

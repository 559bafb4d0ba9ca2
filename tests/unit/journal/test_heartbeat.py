from __future__ import annotations

import threading

import pytest

from holdfast.errors import LeaseLost, StoreBusy
from holdfast.journal.lease import (
    Heartbeat,
    Lease,
    lease_key,
    read_lease,
    take_lease,
)
from holdfast.storage.base import ALWAYS, Condition, Store
from holdfast.storage.memory import MemoryStore
from holdfast.storage.records import seal
from tests.clocks import FakeClock
from tests.patience import PATIENCE_S


class Beats:
    """A heartbeat every few milliseconds, and what it has reported."""

    def __init__(self, lease: Lease) -> None:
        self.counted = 0
        self.lost: list[LeaseLost] = []
        self._told = threading.Event()
        self._beaten = threading.Condition()
        self.heart = Heartbeat(lease, self._progress, self._on_lost)

    def _progress(self) -> int:
        with self._beaten:
            self.counted += 1
            self._beaten.notify_all()
        return self.counted

    def _on_lost(self, lost: LeaseLost) -> None:
        self.lost.append(lost)
        self._told.set()

    def wait_for(self, beats: int) -> None:
        with self._beaten:
            target = self.counted + beats
            assert self._beaten.wait_for(lambda: self.counted >= target, timeout=PATIENCE_S)

    def wait_until_lost(self) -> None:
        assert self._told.wait(PATIENCE_S)


def quick_lease(store: Store, clock: FakeClock) -> Lease:
    return take_lease(store, run="run 'r'", clock=clock, time_to_live_s=0.01)


def test_a_heartbeat_renews_until_it_is_stopped(store: Store, clock: FakeClock) -> None:
    lease = quick_lease(store, clock)
    beats = Beats(lease)
    beats.heart.start()
    beats.wait_for(3)
    clock.time += 100
    beats.wait_for(3)
    beats.heart.stop()

    record = read_lease(store, 1)
    assert record == lease.record
    assert lease.record.renewed == clock.time
    assert lease.record.journal_next == beats.counted
    assert beats.lost == []


def test_a_heartbeat_that_was_never_started_can_be_stopped(store: Store, clock: FakeClock) -> None:
    Beats(quick_lease(store, clock)).heart.stop()


@pytest.mark.parametrize(
    "successor", [None, seal({"format": 99}) + b"\n"], ids=["same version", "newer"]
)
def test_a_heartbeat_tells_when_the_run_was_taken_and_ends(
    store: Store, clock: FakeClock, successor: bytes | None
) -> None:
    beats = Beats(quick_lease(store, clock))
    if successor is None:
        clock.time += 1
        quick_lease(store, clock)
    else:
        store.put(lease_key(2), successor)

    beats.heart.start()
    beats.wait_until_lost()
    beats.heart.stop()

    assert len(beats.lost) == 1
    assert "was taken over" in beats.lost[0].message


def test_a_heartbeat_goes_on_after_a_write_that_failed(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    beats = Beats(quick_lease(store, clock))

    def busy(key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        raise StoreBusy(f"cannot write {key}: the line is noisy", key=key)

    with monkeypatch.context() as patch:
        patch.setattr(store, "put", busy)
        beats.heart.start()
        beats.wait_for(2)
    clock.time += 100
    beats.wait_for(2)
    beats.heart.stop()

    record = read_lease(store, 1)
    assert record is not None and record.renewed == clock.time
    assert "could not renew the lease: cannot write" in caplog.text

"""Tokens as a fence: a driver whose run was moved or replaced has lost its lease."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from holdfast.control.record.open_run import open_run
from holdfast.errors import LeaseLost, StoreError, StoreFull
from holdfast.journal.lease import Lease, read_lease, take_lease
from holdfast.storage.base import Store
from holdfast.storage.local.disk import PosixDisk
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.testing.faults import Fail, TappedDisk
from tests.clocks import FakeClock
from tests.unit.journal.holders import LIFE_S, Faults, FaultyMemory, take


def lease_of(store: Store, clock: FakeClock) -> Lease:
    return take_lease(store, run="run 'r'", clock=clock, time_to_live_s=LIFE_S)


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_driver_whose_run_was_moved_is_over(tmp_path: Path, clock: FakeClock) -> None:
    lease = lease_of(LocalStore(tmp_path / "run"), clock)
    (tmp_path / "run").rename(tmp_path / "moved")

    with pytest.raises(LeaseLost, match="is gone: what this driver has written"):
        lease.check()
    with pytest.raises(LeaseLost):
        lease.renew(3)
    lease.release(3)

    assert not (tmp_path / "run").exists(), "nothing comes to be where it was"


def test_a_driver_whose_run_was_deleted_and_made_anew_changes_nothing_of_it(
    tmp_path: Path, clock: FakeClock
) -> None:
    """The other is at the same path, with the same epoch."""
    root = tmp_path / "run"
    old = take(LocalStore(root), clock, segment_bytes=1)
    old.note("a")
    shutil.rmtree(root)
    new = take(LocalStore(root), clock)
    new.note("b")
    before = tree(root)
    assert new.lease.epoch == old.lease.epoch

    for act in (old.lease.check, lambda: old.lease.renew(9), lambda: old.note("late")):
        with pytest.raises(LeaseLost):
            act()
    old.lease.release(9)

    assert tree(root) == before
    new.lease.check()
    assert read_lease(LocalStore(root), 1) == new.lease.record


def test_the_same_holds_on_an_object_store(clock: FakeClock) -> None:
    store = MemoryStore()
    old = lease_of(store, clock)
    for entry in list(store.entries()):
        store.delete(entry.key)
    new = lease_of(store, clock)

    with pytest.raises(LeaseLost):
        old.renew(9)
    old.release(9)

    assert read_lease(store, 1) == new.record


def test_a_heartbeat_that_is_on_its_way_hits_nobody(clock: FakeClock) -> None:
    """It fell asleep between its look and its write: no look can help then."""
    store = MemoryStore()
    old = lease_of(store, clock)
    for entry in list(store.entries()):
        store.delete(entry.key)
    new = lease_of(store, clock)
    old._write()  # noqa: SLF001

    assert read_lease(store, 1) == new.record
    new.check()
    new.release(3)
    assert lease_of(store, clock).epoch == 2


def test_who_wakes_looks_before_it_does_anything(store: Store, clock: FakeClock) -> None:
    lease = lease_of(store, clock)
    lease.check_after_sleep()
    clock.time += LIFE_S + 1
    lease_of(store, clock)

    with pytest.raises(LeaseLost):
        lease.check_after_sleep()


def test_who_is_awake_does_not_look_again(clock: FakeClock) -> None:
    faults = Faults()
    lease = lease_of(FaultyMemory(faults), clock)
    lease.renew(1)
    looks = faults.looks

    for _ in range(9):
        clock.time += LIFE_S / 20
        lease.check_after_sleep()

    assert faults.looks == looks
    clock.time += LIFE_S
    faults.blind = {looks + 1}
    lease.check_after_sleep()  # what cannot be seen now is no reason to stop
    assert faults.looks == looks + 1


def test_a_process_that_could_not_give_back_a_run_can_open_it_again_at_once(
    tmp_path: Path,
) -> None:
    """The disk was full, also for the word that it has left; a notebook goes on in that process."""
    tap = Fail(errno.ENOSPC, match="nothing", lasting=True)
    run = open_run(LocalStore(tmp_path / "run", TappedDisk(PosixDisk(), tap)))
    tap.match = "*"
    with pytest.raises(StoreFull):
        run.close()

    again = open_run(LocalStore(tmp_path / "run"))

    assert again.epoch == 2
    again.close()


def test_a_process_that_could_not_quite_take_a_run_can_take_it_again_at_once(
    tmp_path: Path,
) -> None:
    tap = Fail(errno.ENOSPC, match="write *", lasting=True)
    (tmp_path / "run").mkdir()
    full = LocalStore(tmp_path / "run", TappedDisk(PosixDisk(), tap))
    for nth in range(1, 100):
        tap.nth, tap.failed = nth, []
        tap._count = 0  # noqa: SLF001
        try:
            open_run(full).close()
        except StoreError:
            continue
        break
    assert nth > 4, "and nobody ever held it"

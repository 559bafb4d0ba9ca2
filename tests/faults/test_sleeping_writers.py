"""A driver that falls asleep before any of its writes, and wakes up when another has the run."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.checkpoint.commit import Slot, deliver
from holdfast.control.record.litter import find_litter, sweep
from holdfast.control.record.open_run import OpenRun, open_run
from holdfast.core.checkpoint.manifest import Part
from holdfast.core.checkpoint.retention import Retention
from holdfast.errors import HoldfastError
from holdfast.storage import transfer
from holdfast.storage.base import ALWAYS, Condition, Store
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.testing.disk import SimDisk
from holdfast.testing.faults import ALLOW, Step, TappedDisk, Verdict
from tests.clocks import FakeClock
from tests.faults import writer
from tests.faults.run_state import state_of
from tests.patience import PATIENCE_S
from tests.runs import save_files

ROOT = "/storage/run"
Act = Callable[[OpenRun, Path], object]


class FallAsleep:
    """Makes a driver sleep before one of its writes, until it is woken."""

    def __init__(self, write: int) -> None:
        self._left = write
        self.is_armed = False
        self.sleeps, self.wakes = threading.Event(), threading.Event()

    def judge(self, step: Step) -> Verdict:
        if self.is_armed:
            self._left -= 1
            if self._left == 0:
                self.sleeps.set()
                assert self.wakes.wait(PATIENCE_S), "nobody woke the driver"
        return ALLOW


class SleepyStore(MemoryStore):
    """An object store as a driver sees it that falls asleep before one of its writes."""

    def __init__(self, name: str, sleep: FallAsleep) -> None:
        super().__init__(name)
        self._sleep = sleep

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        self._sleep.judge(Step("write", key))
        return super().put(key, data, condition)

    def delete(self, key: str) -> None:
        self._sleep.judge(Step("remove", key))
        super().delete(key)


def two_views(kind: str, sleep: FallAsleep) -> tuple[Store, Store]:
    """Return one store twice: as the driver sees it that will sleep, and as it is."""
    if kind == "objects":
        name = secrets.token_hex(8)
        return SleepyStore(name, sleep), MemoryStore(name)
    disk = SimDisk("/storage")
    return LocalStore(ROOT, TappedDisk(disk, sleep)), LocalStore(ROOT, disk)


def _deliver(run: OpenRun, folder: Path, directory: str | None = None) -> tuple[Slot, Part]:
    slot = run.begin_checkpoint(attempt=1, directory=directory)
    saved = writer.contents(slot.number, 0, slot.epoch)
    source = save_files(folder / f"{slot.number}-{slot.epoch}", saved)
    return slot, deliver(run.store, slot, 0, source)


def _commit(run: OpenRun, folder: Path, directory: str | None = None) -> int:
    slot, part = _deliver(run, folder, directory)
    return run.commit_checkpoint(slot, [part]).number


def _commit_best(run: OpenRun, folder: Path) -> int:
    return _commit(run, folder, "best")


def _retain(run: OpenRun, folder: Path) -> None:
    run.retain(Retention(keep=1))


def _compact(run: OpenRun, folder: Path) -> None:
    run.compact()


def _tidy(run: OpenRun, folder: Path) -> None:
    sweep(run)


def _renew(run: OpenRun, folder: Path) -> None:
    run.lease.renew(run.journal.next_seq)


def _close(run: OpenRun, folder: Path) -> None:
    run.close()


@dataclass
class Sleeper:
    """A driver in a thread, which falls asleep at some write of its acts."""

    run: OpenRun
    acts: list[Act]
    folder: Path
    sleep: FallAsleep
    late: list[str] = field(default_factory=list)  # acts that succeeded after it woke up

    def live(self) -> None:
        self.sleep.is_armed = True
        for act in self.acts:
            try:
                act(self.run, self.folder)
                if self.sleep.sleeps.is_set():
                    self.late.append(act.__name__)
            except HoldfastError:  # its lease is lost, or what it was to commit has been swept
                continue
        self.sleep.sleeps.set()  # there was no such write any more


def short_segments(store: Store, clock: FakeClock) -> OpenRun:
    run = open_run(store, name="run", clock=clock, beats=False)
    run.journal._segment_bytes = 600  # noqa: SLF001  # so that compaction has something to do
    return run


def sleep_before_any_write(
    kind: str, acts: list[Act], successor_acts: list[Act], folder: Path
) -> int:
    """Let a driver sleep before its first write, its second … while another one takes the run.

    Return how many writes there are.
    """
    for write in range(1, 1000):
        clock, sleep = FakeClock(), FallAsleep(write)
        sleepy, store = two_views(kind, sleep)
        run = short_segments(sleepy, clock)
        _commit(run, folder)
        _commit(run, folder)
        sleeper = Sleeper(run, acts, folder, sleep)
        thread = threading.Thread(target=sleeper.live)
        thread.start()
        assert sleep.sleeps.wait(PATIENCE_S)
        if not thread.is_alive() or sleep._left > 0:  # noqa: SLF001
            thread.join()
            return write - 1
        clock.sleep(1000)
        successor = short_segments(store, clock)
        for act in successor_acts:
            act(successor, folder)
        slot, part = _deliver(successor, folder)  # and in the middle of this the other wakes up
        before = state_of(store)
        sleep.wakes.set()
        thread.join()
        where = f"asleep before write {write} of {[act.__name__ for act in acts]}"

        assert {"_commit", "_commit_best", "_renew"}.isdisjoint(sleeper.late), where
        assert state_of(store) == before, where
        newest = successor.commit_checkpoint(slot, [part]).number
        successor.close()
        third = short_segments(store, clock)
        found = third.newest_good()
        assert found is not None and found.number == newest, where
        assert third.record.kept == successor.record.kept, where
        assert third.journal.damages == [], where
        sweep(third)
        assert find_litter(store, third.identity.run_id, third.record) == [], where
    pytest.fail("this driver never sleeps")


@pytest.fixture
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "THREADS_LOCAL", 1)
    monkeypatch.setattr(transfer, "THREADS_REMOTE", 1)


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("kind", ["disk", "objects"])
@pytest.mark.parametrize(
    "successor_acts", [[_commit], [_commit, _retain, _compact, _tidy]], ids=["busy", "tidy"]
)
@pytest.mark.parametrize(
    ("acts", "writes_min"),
    [
        ([_commit, _commit], 10),
        ([_retain, _tidy], 4),
        ([_compact, _renew, _commit], 8),
        ([_renew, _close], 3),
    ],
    ids=["commit", "retain", "compact", "close"],
)
def test_a_driver_that_sleeps_before_any_write_and_wakes_up_replaced_changes_nothing(
    kind: str, acts: list[Act], writes_min: int, successor_acts: list[Act], tmp_path: Path
) -> None:
    assert sleep_before_any_write(kind, acts, successor_acts, tmp_path) >= writes_min


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("kind", ["disk", "objects"])
def test_a_name_of_the_users_own_does_not_let_a_replaced_driver_hit_its_successor(
    kind: str, tmp_path: Path
) -> None:
    """Numbers are never given out twice, but both drivers may choose the same name."""
    acts: list[Act] = [_commit_best, _retain]

    assert sleep_before_any_write(kind, acts, [_commit_best, _commit], tmp_path) > 8

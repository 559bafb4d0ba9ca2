"""Two drivers on one run: real processes that race, are stopped and woken, are killed; and, on a
simulated disk, a driver that falls asleep before any of its writes and wakes up replaced.

What counts of a run is what its journal says and the checkpoints that it names, byte for byte.
"""

from __future__ import annotations

import os
import random
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.checkpoint.commit import deliver
from holdfast.checkpoint.manifests import get_manifest, manifest_key
from holdfast.control.identity import read_identity
from holdfast.control.open_run import OpenRun, open_run
from holdfast.control.upkeep import find_litter, sweep
from holdfast.core.record import RunRecord, record_of
from holdfast.core.retention import Retention
from holdfast.errors import HoldfastError
from holdfast.journal.replay import read_journal
from holdfast.storage import transfer
from holdfast.storage.base import ALWAYS, Condition, Store
from holdfast.storage.damage import damage_of
from holdfast.storage.local import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.testing.disk import SimDisk
from holdfast.testing.faults import ALLOW, Step, TappedDisk, Verdict
from tests.faults import writer
from tests.faults.stories import FakeClock
from tests.runs import save_files

# ---------------------------------------------------------------------------------- what counts


@dataclass(frozen=True)
class State:
    """All that counts of a run at one moment."""

    record: RunRecord
    next_seq: int
    files: dict[str, bytes]


def state_of(store: Store) -> State:
    records, replay = read_journal(store, read_identity(store).run_id)
    assert replay.damages == []
    record = record_of((one.kind, one.data) for one in records)
    files = {}
    for kept in record.usable():
        manifest = get_manifest(store, kept.directory)
        keys = [f"{kept.directory}/{entry.path}" for entry in manifest.files]
        for key in (manifest_key(kept.directory), *keys):
            files[key] = store.get(key).data
        assert damage_of(store, kept.directory, manifest.files) == []
    return State(record, replay.next_seq, files)


# ---------------------------------------------------------------------------------- processes


class Writer:
    """A driver in a process of its own, and what it has said so far."""

    def __init__(self, root: Path, *how: object, is_patient: bool = False) -> None:
        command = [sys.executable, "-m", "tests.faults.writer", str(root), *map(str, how)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.said: list[str] = []
        assert self.process.stdin is not None
        self.process.stdin.write("wait\n" if is_patient else "go\n")
        self.process.stdin.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        """Return the next line, an empty one if the process has said all it ever will."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if line:
            self.said.append(line)
        return line

    def hear_until(self, word: str) -> str:
        while line := self.hear():
            if line.startswith(word):
                return line
        pytest.fail(f"never said {word!r}, only {self.said}")

    def hear_out(self) -> int:
        """Hear everything there is to hear, and return how the process ended."""
        while self.hear():
            continue
        return self.process.wait()

    def wait_until_stopped(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def acknowledged(self) -> list[int]:
        return [int(line.split()[1]) for line in self.said if line.startswith("ack ")]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def writing(root: Path, *how: object, is_patient: bool = False) -> Iterator[Writer]:
    one = Writer(root, *how, is_patient=is_patient)
    try:
        yield one
    finally:
        one.end()


def test_a_second_driver_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    root = tmp_path / "run"
    with writing(root, 30, 3, "SIGSTOP", 5) as first:
        first.hear_until("open")
        first.wait_until_stopped()
        with writing(root, 30, 3) as second:
            code = second.hear_out()

    assert code == 3
    assert len(second.said) == 1
    assert re.search(rf"held by \S+ \(pid {first.pid}\), lease renewed \d+ s ago", second.said[0])


def test_of_drivers_that_start_at_once_one_gets_the_run(tmp_path: Path) -> None:
    root = tmp_path / "run"
    with writing(root, 30, 2) as a, writing(root, 30, 2) as b, writing(root, 30, 2) as c:
        ends = [one.hear_out() for one in (a, b, c)]

    opened = [one for one in (a, b, c) if one.said[0].startswith("open")]
    assert set(ends) <= {0, 3}
    epochs = sorted(int(one.said[0].split()[1]) for one in opened)
    assert epochs == list(range(1, len(opened) + 1)), "two drivers had one epoch"
    numbers = [number for one in opened for number in one.acknowledged()]
    assert sorted(numbers) == list(range(2 * len(opened))), "a number was given out twice"


@pytest.mark.parametrize("write", [1, 4, 9, 16, 25, 36, 49, 64])
def test_a_driver_that_was_stopped_and_woken_after_a_takeover_changes_nothing(
    tmp_path: Path, write: int
) -> None:
    """SIGSTOP before any write of its commits, retention and compaction; SIGCONT much later."""
    root = tmp_path / "run"
    with writing(root, 0.3, 1000, "SIGSTOP", write) as zombie:
        zombie.hear_until("open 1")
        zombie.wait_until_stopped()
        with writing(root, 30, 3, is_patient=True) as successor:
            assert successor.hear_out() == 0
        before = state_of(LocalStore(root))

        zombie.process.send_signal(signal.SIGCONT)
        code = zombie.hear_out()

    assert code == 4, zombie.said
    assert "was taken over by" in zombie.said[-1]
    assert state_of(LocalStore(root)) == before
    kept = {key.split("/")[0] for key in before.files if not key.startswith(".holdfast")}
    assert {f"checkpoint_{n:06d}" for n in successor.acknowledged()} <= kept


@pytest.mark.parametrize("seed", range(3))
def test_a_driver_killed_at_any_moment_loses_nothing_and_is_replaced_at_once(
    tmp_path: Path, seed: int
) -> None:
    """The lease would last for a minute: whoever comes next sees that its holder is dead."""
    root, moments = tmp_path / "run", random.Random(seed)
    acknowledged: list[int] = []
    for epoch in range(1, 9):
        with writing(root, 60, 1000, "SIGKILL", moments.randint(1, 150)) as driver:
            code = driver.hear_out()
        assert code == -signal.SIGKILL
        assert driver.said[0] == f"open {epoch}"
        acknowledged += driver.acknowledged()

    assert acknowledged == sorted(set(acknowledged)), "a number was given out twice"
    with open_run(LocalStore(root)) as run:
        newest = run.newest_good()
        assert newest is not None and newest.number >= acknowledged[-1]
        assert set(acknowledged[-writer.KEEP :]) <= {kept.number for kept in run.record.usable()}
        assert run.record.quarantined() == []
        assert run.journal.damages == []
        sweep(run)
        assert find_litter(run.store, run.identity.run_id, run.record) == []
        assert_contents(run)


def assert_contents(run: OpenRun) -> None:
    for kept in run.record.usable():
        for rank in range(writer.RANKS):
            for name, data in writer.contents(kept.number, rank, kept.epoch).items():
                assert run.store.get(f"{kept.directory}/{name}").data == data


# ---------------------------------------------------------------------------------- any write

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
                assert self.wakes.wait(10), "nobody woke the driver"
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


def _commit(run: OpenRun, folder: Path, directory: str | None = None) -> int:
    slot = run.begin_checkpoint(attempt=1, directory=directory)
    saved = writer.contents(slot.number, 0, slot.epoch)
    source = save_files(folder / f"{slot.number}-{slot.epoch}", saved)
    run.commit_checkpoint(slot, [deliver(run.store, slot, 0, source)])
    return slot.number


def _commit_best(run: OpenRun, folder: Path) -> int:
    return _commit(run, folder, "best")


def _retain(run: OpenRun, folder: Path) -> None:
    run.retain(Retention(keep=1))


def _compact(run: OpenRun, folder: Path) -> None:
    run.compact()


def _sweep(run: OpenRun, folder: Path) -> None:
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
        assert sleep.sleeps.wait(10)
        if not thread.is_alive() or sleep._left > 0:  # noqa: SLF001
            thread.join()
            return write - 1
        clock.sleep(1000)
        successor = short_segments(store, clock)
        for act in successor_acts:
            act(successor, folder)
        before = state_of(store)
        sleep.wakes.set()
        thread.join()
        where = f"asleep before write {write} of {[act.__name__ for act in acts]}"

        assert {"_commit", "_commit_best", "_renew"}.isdisjoint(sleeper.late), where
        assert state_of(store) == before, where
        newest = _commit(successor, folder)
        successor.close()
        third = short_segments(store, clock)
        assert third.journal.damages == [], where
        found = third.newest_good()
        assert found is not None and found.number == newest, where
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
    "successor_acts", [[_commit], [_commit, _retain, _compact, _sweep]], ids=["busy", "tidy"]
)
@pytest.mark.parametrize(
    ("acts", "writes_min"),
    [
        ([_commit, _commit], 10),
        ([_retain, _sweep], 4),
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

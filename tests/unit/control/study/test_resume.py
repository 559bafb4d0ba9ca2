"""A study that goes on: which checkpoints of its trials count, whoever has put them when."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.checkpoint.commit import Slot, deliver
from holdfast.clock import SYSTEM_CLOCK
from holdfast.control.record.open_run import OpenStudy
from holdfast.control.study.journal import StudyJournal
from holdfast.control.study.plan import StudyPlan
from holdfast.control.study.reader import NoJudge, rebuild
from holdfast.control.study.resume import continue_study
from holdfast.control.study.trial_checkpoints import TrialCheckpoints
from holdfast.core.checkpoint.retention import Retention
from holdfast.core.run.outcomes import Finished
from holdfast.core.study.events import TrialExited, TrialStarted
from holdfast.core.study.judges import Judges
from holdfast.core.study.machine import Study
from holdfast.core.study.rules import Rules
from holdfast.core.study.trial import Trial
from holdfast.engine.base import Engine
from holdfast.errors import LeaseLost
from holdfast.storage.base import Store
from holdfast.storage.local.store import LocalStore
from holdfast.storage.locate import child
from holdfast.storage.memory import MemoryStore
from holdfast.testing.disk import SimDisk
from tests.clocks import FakeClock
from tests.runs import save_files
from tests.unit.core.study.studies import added

ROOT = "/storage/study"
PLAN = StudyPlan(
    program=b"",
    propose=lambda: None,
    config_of=lambda trial: {},
    needs_of=lambda trial: [{"CPU": 1.0}],
    retention=Retention(),
    log_folder="",
)


class Driver:
    """One driver of a study, which has taken in all that was there."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        clock.sleep(1000)
        self.run = OpenStudy.open(store, name="study", clock=clock, beats=False)
        nobody = NoJudge()
        self.study = Study(Judges(nobody, nobody, nobody), Rules())
        rebuild(self.study, self.run.tail)
        self.journal = StudyJournal(self.run, self.study)
        for trial in self.study.get_trials():
            self.checkpoints(trial.trial_id).sweep(looks=True)
        engine = cast("Engine", SimpleNamespace(nodes=list))
        self.untold = continue_study(self.run, self.study, self.journal, engine, PLAN)

    def add(self, trial_id: str, number: int) -> None:
        self.journal.happen(added(trial_id, number))
        self.start(trial_id)

    def start(self, trial_id: str) -> None:
        attempt = self.trial(trial_id).run.attempts + 1
        self.journal.happen(TrialStarted(trial_id, attempt, [], 0, time=0.0))

    def trial(self, trial_id: str) -> Trial:
        return self.study.trials[trial_id]

    def numbers(self, trial_id: str) -> list[int]:
        return [kept.number for kept in self.trial(trial_id).checkpoints.usable()]

    def checkpoints(self, trial_id: str) -> TrialCheckpoints:
        trial = self.trial(trial_id)
        store = child(self.run.store, trial.folder)
        return TrialCheckpoints(
            trial, store, self.run.run_id, self.run.epoch, self.journal, SYSTEM_CLOCK
        )

    def begin(self, trial_id: str, source: Path) -> tuple[TrialCheckpoints, Slot, Any]:
        checkpoints = self.checkpoints(trial_id)
        slot = checkpoints.begin_checkpoint(attempt=1)
        self.journal.settle()
        return checkpoints, slot, deliver(checkpoints.store, slot, 0, source)

    def save(self, trial_id: str, source: Path, step: int) -> None:
        checkpoints, slot, part = self.begin(trial_id, source)
        manifest = checkpoints.write_checkpoint(slot, [part], step=step, metrics={"at": step})
        checkpoints.note_commit(manifest)
        self.journal.settle()

    def leave(self) -> None:
        """Be gone, as a driver is that was killed."""
        self.journal.close()


@contextmanager
def driving(store: Store, clock: FakeClock) -> Iterator[Driver]:
    driver = Driver(store, clock)
    yield driver
    driver.leave()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save_files(tmp_path / "source", {"model.pt": b"w" * 100})


def test_what_a_replaced_driver_commits_late_is_taken_in_by_nobody(source: Path) -> None:
    """Its successor has looked already, and the trial has gone on without it."""
    store, clock = MemoryStore(secrets.token_hex(8)), FakeClock()
    sleeper = Driver(store, clock)
    sleeper.add("a", 0)
    sleeper.save("a", source, 1)
    checkpoints, slot, part = sleeper.begin("a", source)
    with driving(store, clock) as successor:
        assert successor.numbers("a") == [0]
        successor.start("a")
        deliver(checkpoints.store, slot, 0, source)  # it wakes, and its upload goes on

        checkpoints.write_checkpoint(slot, [part], step=2, metrics={"at": "another time"})
        with pytest.raises(LeaseLost):
            sleeper.journal.check()
    with driving(store, clock) as third:
        assert [result["at"] for _, result in third.untold] == [1]
        assert third.numbers("a") == [0]
        third.checkpoints("a").sweep(looks=True)
        assert not list(child(store, "a").entries(slot.directory)), "it is litter"


def test_a_commit_that_was_cut_off_before_its_record_is_taken_in(source: Path) -> None:
    store, clock = MemoryStore(secrets.token_hex(8)), FakeClock()
    with driving(store, clock) as first:
        first.add("a", 0)
        checkpoints, slot, part = first.begin("a", source)
        checkpoints.write_checkpoint(slot, [part], step=1, metrics={"at": 1})
    for _ in range(2):
        with driving(store, clock) as successor:
            assert successor.numbers("a") == [0]
            assert successor.trial("a").step == 1
            successor.start("a")


def test_a_replaced_driver_sweeps_nothing_of_its_successors(source: Path, tmp_path: Path) -> None:
    store, clock = LocalStore(tmp_path / "study"), FakeClock()
    sleeper = Driver(store, clock)
    sleeper.add("a", 0)
    sleeper.journal.settle()
    with driving(store, clock) as successor:
        successor.start("a")
        checkpoints, slot, part = successor.begin("a", source)

        with pytest.raises(LeaseLost):
            sleeper.checkpoints("a").sweep(looks=True)

        checkpoints.write_checkpoint(slot, [part], step=1)


def damaged_study(source: Path) -> SimDisk:
    """Return a study whose journal has lost what was saved by a trial that ran and one that waits.

    Both have saved twice, and both are known.
    """
    disk, clock = SimDisk(os.path.dirname(ROOT)), FakeClock()
    store = LocalStore(ROOT, disk)
    driver = Driver(store, clock)
    for number, trial_id in enumerate("ab"):
        driver.add(trial_id, number)
    driver.journal.happen(TrialExited("b", 1, "paused", Finished(0, "node")))
    driver.journal.settle()
    [segment] = [name for name, _ in disk.scan(f"{ROOT}/.holdfast/journal")]
    size = len(store.get(f".holdfast/journal/{segment}").data)
    for trial_id in "abab":
        driver.save(trial_id, source, 1)
    driver.run.lease.renew(driver.run.journal.next_seq)
    driver.leave()
    truncate(disk, segment, size)
    return disk


def truncate(disk: SimDisk, segment: str, size: int) -> None:
    handle = disk.open_append(f"{ROOT}/.holdfast/journal/{segment}")
    disk.truncate(handle, size)
    disk.close(handle)


def test_a_study_whose_opening_is_cut_off_anywhere_after_damage_loses_no_checkpoint(
    source: Path,
) -> None:
    damaged = damaged_study(source).image()
    disk = SimDisk(image=damaged)
    with driving(LocalStore(ROOT, disk), FakeClock(2_000_000.0)) as driver:
        assert [driver.numbers(one) for one in "ab"] == [[1, 0], [1, 0]]
    newest = max(name for name, _ in disk.scan(f"{ROOT}/.holdfast/journal"))
    data = LocalStore(ROOT, disk).get(f".holdfast/journal/{newest}").data
    opened, size = disk.image(), 0
    for line in data.splitlines(keepends=True):
        size += len(line)
        cut = SimDisk(image=opened)
        truncate(cut, newest, size)
        clock = FakeClock(3_000_000.0)
        for _ in range(2):
            with driving(LocalStore(ROOT, cut), clock) as next_driver:
                for trial_id in "ab":
                    next_driver.checkpoints(trial_id).sweep(looks=True)
                    where = f"{trial_id}, cut off behind {line[:80]!r}"
                    assert next_driver.numbers(trial_id) == [1, 0], where
                    assert next_driver.checkpoints(trial_id).newest_good() is not None, where

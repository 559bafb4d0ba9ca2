"""A study whose journal cannot be written for a moment, at any write, while its loop goes on.

The study ends; what is at rest of it is all that happened up to some moment, without a hole; and
whoever goes on with it makes all the trials and decisions that would have been.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from holdfast.control.record.open_run import OpenRun, OpenStudy
from holdfast.control.study.journal import StudyJournal
from holdfast.core.study.events import KINDS, STATE, StudyEvent, from_data, to_data
from holdfast.errors import StoreError
from holdfast.journal.replay import read_journal
from holdfast.storage.local.store import LocalStore
from holdfast.testing.disk import SimDisk
from holdfast.testing.faults import Fail, Step, TappedDisk, Verdict
from holdfast.testing.study_play import Driver, Event, Played, Script, play
from tests.clocks import FakeClock
from tests.faults.stories import ROOT
from tests.faults.study.plays import script
from tests.faults.study.test_equivalence import must_be_what_was_left
from tests.patience import PATIENCE_S

FLUSHED_EVERY = 4  # events
GOES_ON_FOR = 3  # events, while the write that will fail is under way


class SlowFail(Fail):
    """Makes a write fail that takes its time: it is `met`, and fails once it `may_fail`."""

    def __init__(self, code: int, nth: int, match: str) -> None:
        super().__init__(code, nth, match, part=0.6)
        self.met, self.may_fail = threading.Event(), threading.Event()

    def judge(self, step: Step) -> Verdict:
        before = len(self.failed)
        verdict = super().judge(step)
        if len(self.failed) > before:
            self.met.set()
            assert self.may_fail.wait(PATIENCE_S), "the loop stands still"
        return verdict


class JournaledDriver(Driver):
    """Drives a study whose events go to a journal, which another thread writes."""

    def __init__(self, script: Script, run: OpenRun, past: list[Event], tap: SlowFail) -> None:
        super().__init__(script, past)
        self.journal = StudyJournal(run, self.study)
        self._run, self._tap = run, tap
        self._writing: threading.Thread | None = None
        self._left_to_do = GOES_ON_FOR

    def _happen(self, event: StudyEvent) -> None:
        kind, said = event.kind, json.dumps(to_data(event))
        self.journal.happen(from_data(kind, json.loads(said)))
        self.events.append((kind, json.loads(said)))
        self._note_saved(kind, json.loads(said))
        if self._writing is not None:  # and is about to fail
            self._left_to_do -= 1
            if self._left_to_do == 0:
                self._tap.may_fail.set()
                self._writing.join()
                self._writing = None
        elif len(self.events) % FLUSHED_EVERY == 0:
            self._flush()

    def _flush(self) -> None:
        done = threading.Event()

        def write() -> None:
            with contextlib.suppress(StoreError):
                self.journal.settle()
            done.set()
            self._tap.met.set()

        writing = threading.Thread(target=write)
        writing.start()
        self._tap.met.wait()
        if done.is_set():
            writing.join()
        else:
            self._writing = writing
        if not self._tap.failed:
            self._tap.met.clear()

    def live(self) -> bool:
        """Drive the study and leave it; return whether all went well."""
        went_well = True
        for act in (self.play, self._join, self.journal.close, self._run.close):
            try:
                act()
            except StoreError:
                went_well = False
                self._join()
        return went_well

    def _join(self) -> None:
        self._tap.may_fail.set()
        if self._writing is not None:
            self._writing.join()


def at_rest(disk: SimDisk) -> list[Event]:
    records, replay = read_journal(LocalStore(ROOT, disk))
    assert replay.damages == []
    return [(record.kind, record.data) for record in records if record.kind in KINDS | {STATE}]


@dataclass
class Life:
    """A study one of whose writes has failed: what happened in it, and whether it was told."""

    disk: SimDisk
    tap: SlowFail
    events: list[Event]
    was_told: bool

    @property
    def where(self) -> str:
        return f"failed: {self.tap.failed[0]}, the {self.tap.nth}. of its kind"


def failed_lives(told: Script, code: int, match: str) -> Iterator[Life]:
    """Yield a life for every write that can fail, after it was lived."""
    for nth in range(1, 1000):
        clock, disk = FakeClock(), SimDisk(os.path.dirname(ROOT))
        tap = SlowFail(code, nth, "nothing")
        store = LocalStore(ROOT, TappedDisk(disk, tap))
        run = OpenStudy.open(store, name="study", clock=clock, beats=False)
        tap.match = match
        driver = JournaledDriver(told, run, [], tap)
        was_told = not driver.live()
        if not tap.failed:
            assert not was_told
            assert nth > 8, "hardly any write was met"
            return
        yield Life(disk, tap, driver.events, was_told)
    pytest.fail("this study never ends")


def go_on(told: Script, life: Life, wanted: Played) -> None:
    past = at_rest(life.disk)
    assert past == life.events[: len(past)], f"{life.where}: there is a hole"
    clock = FakeClock(2_000_000.0)
    run = OpenStudy.open(LocalStore(ROOT, life.disk), clock=clock, beats=False)
    assert run.journal.damages == [], life.where
    run.close()
    must_be_what_was_left(play(told, past=past), wanted, len(past))


@pytest.mark.parametrize(("code", "verb"), [(errno.ENOSPC, "write"), (errno.EIO, "sync")])
@pytest.mark.parametrize("scheduler", ["ASHA", "PBT"])
def test_a_journal_write_that_fails_while_the_loop_goes_on_leaves_no_hole(
    scheduler: str, code: int, verb: str
) -> None:
    told = script(scheduler, "random")
    wanted = play(told)
    for life in failed_lives(told, code, f"{verb} */journal/*"):
        assert life.was_told, f"{life.where}: nobody heard of it"
        go_on(told, life, wanted)

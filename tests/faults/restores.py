"""A run and a study that were left, and what a driver reads of them before anything runs.

Whatever kept it from reading: no checkpoint is set aside, none is deleted, and the next driver
begins everywhere with the newest.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

from holdfast.checkpoint.commit import deliver
from holdfast.clock import Clock
from holdfast.control.record.litter import sweep
from holdfast.control.record.open_run import OpenRun, OpenStudy, open_run
from holdfast.control.study.journal import StudyJournal
from holdfast.control.study.plan import StudyPlan
from holdfast.control.study.reader import NoJudge, rebuild
from holdfast.control.study.resume import continue_study
from holdfast.control.study.trial_checkpoints import TrialCheckpoints
from holdfast.core.checkpoint.record import RunRecord
from holdfast.core.checkpoint.retention import Retention
from holdfast.core.run.outcomes import Finished
from holdfast.core.study.events import StudyOpened, TrialAdded, TrialExited, TrialStarted
from holdfast.core.study.judges import Judges
from holdfast.core.study.machine import Study
from holdfast.core.study.rules import Rules
from holdfast.core.study.trial import Trial
from holdfast.errors import HoldfastError
from holdfast.storage.base import Store
from holdfast.storage.locate import child
from tests.runs import commit_to, save_files

ROOMS = {"node": {"CPU": 4.0}}
ENGINE: Any = SimpleNamespace(nodes=list)

HeldRun = TypeVar("HeldRun", bound=OpenRun)


class Left(ABC):
    """Something that was left to be restored."""

    begins_with: ClassVar[Any]

    @abstractmethod
    def leave(self, store: Store, sources: Path, clock: Clock) -> None:
        """Write it down, whole."""

    @abstractmethod
    def restore(self, store: Store, clock: Clock) -> tuple[Any, list[RunRecord]]:
        """Do what a driver does before its processes begin; return with what they would begin.

        And what is known then of checkpoints.
        """


class LeftRun(Left):
    """A training run with three checkpoints."""

    begins_with = "checkpoint_000002"

    def leave(self, store: Store, sources: Path, clock: Clock) -> None:
        with open_run(store, name="left", clock=clock, beats=False) as run:
            for step in (1, 2, 3):
                commit_to(run, *_sources(sources, step, ranks=2), step=step)

    def restore(self, store: Store, clock: Clock) -> tuple[Any, list[RunRecord]]:
        with _held(open_run(store, name="left", clock=clock, beats=False)) as run:
            sweep(run)
            newest = run.newest_good()
            return newest and newest.directory, [run.record]


class LeftStudy(Left):
    """A study with a trial that ran, one that waits, and one that was given the first's weights."""

    begins_with: ClassVar = {
        name: f"{name[0]}/checkpoint_000001" for name in ("a", "b", "a taken over")
    }

    def leave(self, store: Store, sources: Path, clock: Clock) -> None:
        with OpenStudy.open(store, name="left", clock=clock, beats=False) as run:
            study, journal = _begun(run)
            journal.happen(StudyOpened(rooms=ROOMS))
            for number, trial_id in enumerate(("a", "b", "a taken over")):
                journal.happen(_added(trial_id, number))
            for trial_id in ("a", "b"):
                journal.happen(TrialStarted(trial_id, 1, ["node"], 0, time=0.0))
                for step in (1, 2):
                    checkpoints = _checkpoints(run, study.trials[trial_id], journal, clock)
                    slot = checkpoints.begin_checkpoint(attempt=1)
                    [source] = _sources(sources, step)
                    part = deliver(checkpoints.store, slot, 0, source)
                    checkpoints.commit_checkpoint(slot, [part], step=step)
            journal.happen(TrialExited("b", 1, "paused", Finished(0, "node")))
            taker = study.trials["a taken over"]
            assert taker.become(study.trials["a"], {}, "copied")
            journal.write_state()
            journal.settle()
            journal.close()

    def restore(self, store: Store, clock: Clock) -> tuple[Any, list[RunRecord]]:
        with _held(OpenStudy.open(store, name="left", clock=clock, beats=False)) as run:
            study, journal = _begun(run)
            with _closed(journal):
                for trial in study.get_trials():
                    mine = _checkpoints(run, trial, journal, clock)
                    mine.sweep(looks=True, needed=study.donated_by(trial))
                continue_study(run, study, journal, ENGINE, _PLAN)
                begin = {}
                for trial in study.get_trials():
                    found, _, _ = _checkpoints(run, trial, journal, clock).beginning(store, None)
                    begin[trial.trial_id] = found and "/".join(found.path.split("/")[-2:])
                return begin, [trial.checkpoints for trial in study.get_trials()]


def must_be_as_left(
    left: Left, store: Store, before: dict[str, bytes], clock: Clock, where: str
) -> None:
    """The storage can be read again: everything is there, and a driver begins with the newest."""
    begins_with, records = left.restore(store, clock)

    assert begins_with == left.begins_with, where
    assert [one.directory for record in records for one in record.quarantined()] == [], where
    assert saved_in(store) == before, where


def saved_in(store: Store) -> dict[str, bytes]:
    """Return what is at rest of checkpoints and their manifests."""
    return {
        entry.key: store.get(entry.key).data
        for entry in store.entries()
        if "checkpoint_" in entry.key and "/staging/" not in entry.key
    }


# ---------------------------------------------------------------------- pieces


def _sources(folder: Path, step: int, ranks: int = 1) -> list[Path]:
    return [
        save_files(folder / f"{step}-{rank}", {f"{rank}.pt": f"step {step} of {rank}".encode()})
        for rank in range(ranks)
    ]


@contextlib.contextmanager
def _held(run: HeldRun) -> Iterator[HeldRun]:
    """Close a run at last; that it cannot be is not what is looked at."""
    try:
        yield run
    finally:
        with contextlib.suppress(HoldfastError):
            run.close()


@contextlib.contextmanager
def _closed(journal: StudyJournal) -> Iterator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(HoldfastError):
            journal.close()


def _begun(run: OpenStudy) -> tuple[Study, StudyJournal]:
    nobody = NoJudge()
    study = Study(Judges(nobody, nobody, nobody), Rules())
    rebuild(study, run.tail)
    return study, StudyJournal(run, study)


def _added(trial_id: str, number: int) -> TrialAdded:
    return TrialAdded(
        trial_id=trial_id,
        number=number,
        config={},
        params={},
        tag="",
        trainable="t",
        folder=trial_id.replace(" ", "-"),
        resources=[{"CPU": 1.0}],
    )


def _checkpoints(
    run: OpenRun, trial: Trial, journal: StudyJournal, clock: Clock
) -> TrialCheckpoints:
    store = child(run.store, trial.folder)
    return TrialCheckpoints(trial, store, run.run_id, run.epoch, journal, clock)


_PLAN = StudyPlan(
    program=b"",
    propose=lambda: None,
    config_of=lambda trial: {},
    needs_of=lambda trial: [{"CPU": 1.0}],
    retention=Retention(),
    log_folder="",
)

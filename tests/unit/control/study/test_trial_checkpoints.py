"""Checkpoints that trials take over from each other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.checkpoint.commit import deliver
from holdfast.clock import SYSTEM_CLOCK
from holdfast.control.record.open_run import OpenStudy
from holdfast.control.study.reader import NoJudge
from holdfast.control.study.trial_checkpoints import TrialCheckpoints, find_whole
from holdfast.core.study.events import StudyEvent
from holdfast.core.study.judges import Judges
from holdfast.core.study.machine import Study
from holdfast.core.study.rules import Rules
from holdfast.core.study.trial import Donor, Trial
from holdfast.errors import StoreError
from holdfast.storage.base import Store
from holdfast.storage.locate import child, open_store
from tests.runs import save_files


class Scribe:
    """Has a study take in what happens."""

    has_lost_records = False

    def __init__(self, study: Study) -> None:
        self.study = study

    def happen(self, event: StudyEvent) -> None:
        self.study.take(event)

    def settle(self) -> None: ...

    def check(self) -> None: ...


class Stage:
    """A study with a trial that has saved itself three times, and one that was given the last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store: Store = open_store(folder / "study")
        with OpenStudy.open(self.store) as run:
            self.run_id = run.run_id
        nobody = NoJudge()
        self.study = Study(Judges(nobody, nobody, nobody), Rules())
        self.giver, self.taker = Trial("giver", folder="giver"), Trial("taker", folder="taker")
        self.study.trials = {one.trial_id: one for one in (self.giver, self.taker)}
        for step in (1, 2, 3):
            self.save(self.giver, step)
        assert self.taker.become(self.giver, {}, "copied")

    def checkpoints(self, trial: Trial) -> TrialCheckpoints:
        store = child(self.store, trial.folder)
        return TrialCheckpoints(trial, store, self.run_id, 1, Scribe(self.study), SYSTEM_CLOCK)

    def save(self, trial: Trial, step: int) -> None:
        checkpoints = self.checkpoints(trial)
        slot = checkpoints.begin_checkpoint(attempt=1)
        files = save_files(self.folder / f"made-{step}", {"state": str(step).encode()})
        part = deliver(checkpoints.store, slot, 0, files)
        checkpoints.commit_checkpoint(slot, [part], step=step)

    def begins_with(self) -> str | None:
        checkpoint, _, _ = self.checkpoints(self.taker).beginning(self.store, None)
        return None if checkpoint is None else Path(checkpoint.path).name

    def path(self, number: int) -> Path:
        return self.folder / "study" / "giver" / f"checkpoint_{number:06d}"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_the_checkpoint_that_was_given_is_taken_if_it_is_whole(stage: Stage) -> None:
    assert stage.begins_with() == "checkpoint_000002"


def test_a_damaged_one_is_replaced_by_the_newest_whole_one_before_it(stage: Stage) -> None:
    (stage.path(2) / "state").write_bytes(b"4")
    shutil.rmtree(stage.path(1))

    assert stage.begins_with() == "checkpoint_000000"
    assert stage.taker.donor is not None
    assert stage.taker.donor.directory == "checkpoint_000000"


def test_one_that_came_after_is_not_taken(stage: Stage) -> None:
    stage.taker.donor = Donor("giver", "checkpoint_000000")
    shutil.rmtree(stage.path(0))

    assert stage.begins_with() is None
    assert stage.taker.donor is None


def test_a_study_that_is_out_of_sight_changes_no_donor(stage: Stage) -> None:
    (stage.folder / "study").rename(stage.folder / "away")

    with pytest.raises(StoreError, match="cannot be found any more"):
        find_whole(stage.store, stage.run_id, Donor("giver", "checkpoint_000002"))


@pytest.mark.parametrize("is_over", [False, True])
def test_what_another_trial_is_to_go_on_from_is_kept_when_its_own_begins_anew(
    stage: Stage, *, is_over: bool
) -> None:
    if is_over:  # it may be tried again too
        stage.study.finished["taker"] = stage.study.trials.pop("taker")
    stage.giver.revive(from_scratch=True)

    def sweep() -> None:
        needed = stage.study.donated_by(stage.giver)
        stage.checkpoints(stage.giver).sweep(looks=True, needed=needed)

    sweep()
    assert [stage.path(number).exists() for number in range(3)] == [False, False, True]
    assert stage.begins_with() == "checkpoint_000002"
    stage.taker.donor = None
    sweep()
    assert not stage.path(2).exists()
    assert not stage.giver.checkpoints.retired

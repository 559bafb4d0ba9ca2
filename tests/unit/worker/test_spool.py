"""Folders that wait to be uploaded: those of different workers do not collide."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from holdfast.checkpoint.commit import Slot, deliver_taken, prepare_taken, publish
from holdfast.storage.local.store import LocalStore
from holdfast.storage.locate import child
from holdfast.storage.memory import MemoryStore
from holdfast.worker.spool import Spool


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_two_trials_of_a_study_on_remote_storage_do_not_share_a_folder() -> None:
    study = MemoryStore()
    first, second = (Spool(child(study, name), "run", 1, 0) for name in ("trial-1", "trial-2"))

    mine, theirs = first.new(4), second.new(4)
    Path(mine, "weights").write_text("of trial 1")
    Path(theirs, "weights").write_text("of trial 2")
    second.drop(theirs)

    assert Path(mine, "weights").read_text() == "of trial 1"


def test_a_folder_can_be_had_also_after_another_rank_has_tidied_up() -> None:
    ranks = [Spool(child(MemoryStore(), "run"), "run", 1, rank) for rank in (0, 1)]
    ranks[0].drop(ranks[0].new(1))
    assert not os.path.exists(ranks[1].folder)

    assert os.listdir(ranks[1].new(1)) == []


@pytest.mark.parametrize("number", [1, 2, 3])
def test_every_folder_that_may_go_is_moved_and_not_copied(number: int, tmp_path: Path) -> None:
    spool = Spool(MemoryStore(), "run", 1, 0)
    for before in range(1, number):
        spool.drop(spool.new(before))  # which takes the empty spool along
    source = tmp_path / "source"
    source.mkdir()
    weights = source / "weights"
    weights.write_text("large")
    inode = weights.stat().st_ino

    taken = spool.take(str(source), number, moves=True)

    assert Path(taken, "weights").stat().st_ino == inode
    assert not source.exists()


def test_a_folder_that_is_moved_costs_no_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(LocalStore(tmp_path / "run"), "run", 1, 0)
    source = tmp_path / "source"
    source.mkdir()
    made: list[object] = []
    monkeypatch.setattr(os, "mkdir", lambda path, *_, **__: made.append(path))

    spool.take(str(source), 1, moves=True)

    assert made == []


def test_a_file_that_has_another_name_elsewhere_is_copied(tmp_path: Path) -> None:
    """Its owner may write to it by that name, and what was acknowledged must not change."""
    source, other = tmp_path / "source", tmp_path / "other"
    source.mkdir()
    other.write_text("weights")
    (source / "weights").hardlink_to(other)

    taken = Spool(MemoryStore(), "run", 1, 0).take(str(source), 1, moves=True)
    other.write_text("changed")

    assert Path(taken, "weights").read_text() == "weights"
    assert not source.exists()


def test_a_later_attempt_of_the_same_trial_removes_what_an_earlier_one_left() -> None:
    trial = child(MemoryStore(), "trial")
    left = Spool(trial, "run", 1, 0).new(7)

    Spool(trial, "run", 2, 0)

    assert not os.path.exists(left)


def test_what_is_on_the_disk_of_its_run_is_made_durable_before_it_has_a_slot(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path / "run")
    folder = Spool(store, "run", 1, 0).new(1)
    Path(folder, "weights").write_text("of step 1")

    prepared = prepare_taken(store, folder)
    assert prepared is not None
    assert [entry.path for entry in prepared[0]] == ["weights"]
    slot = Slot(0, "checkpoint_000000", 1, 1)
    publish(store, slot, [deliver_taken(store, slot, 0, folder, prepared)])

    assert (tmp_path / "run" / "checkpoint_000000" / "weights").read_text() == "of step 1"
    assert prepare_taken(store, str(tmp_path)) is None, "that must be copied, and needs a place"

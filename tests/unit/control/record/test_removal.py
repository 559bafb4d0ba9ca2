"""What a sweep removes from a run, and that it never removes files of others."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from holdfast.checkpoint.commit import deliver
from holdfast.checkpoint.manifests import manifest_key
from holdfast.control.record.litter import sweep
from holdfast.control.record.open_run import open_run
from holdfast.control.record.run_view import look, verify
from holdfast.core.checkpoint.retention import Retention
from holdfast.storage.local.store import LocalStore
from holdfast.storage.locate import open_store
from tests.runs import commit, commit_to, save_files

NAME = "checkpoint_000000"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return save_files(tmp_path / "files", {"model.pt": b"weights", "inner/config": b"{}"})


@pytest.fixture
def run_path(tmp_path: Path, files: Path) -> Path:
    """A run with two checkpoints, left in good order."""
    for step in (1, 2):
        commit(tmp_path / "run", files, step=step)
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


# ---------------------------------------------------------------------- links


def test_retention_removes_a_link_and_not_what_it_leads_to(run_path: Path) -> None:
    elsewhere = run_path.with_name("other disk") / NAME
    elsewhere.parent.mkdir()
    (run_path / NAME).rename(elsewhere)
    (elsewhere / "NOTES.txt").write_text("mine")
    (run_path / NAME).symlink_to(elsewhere)
    before = contents(elsewhere)

    with open_run(open_store(run_path)) as run:
        assert run.retain(Retention(keep=1)) == [NAME]

    assert contents(elsewhere) == before
    assert not (run_path / NAME).is_symlink()
    assert verify(look(open_store(run_path))).litter == []


def test_retention_leaves_what_lies_behind_a_link(
    run_path: Path, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_run(open_store(run_path)) as run:
        slot = run.begin_checkpoint(attempt=1, directory="best/one")
        run.commit_checkpoint(slot, [deliver(run.store, slot, 0, files)])
        commit_to(run, files)
    elsewhere = run_path.with_name("other disk")
    (run_path / "best").rename(elsewhere)
    (run_path / "best").symlink_to(elsewhere)
    before = contents(elsewhere)

    with open_run(open_store(run_path)) as run:
        assert "best/one" in run.retain(Retention(keep=1))

    assert contents(elsewhere) == before
    assert "best/one is not removed: it is behind the link" in caplog.text


@pytest.mark.parametrize("is_dangling", [False, True])
def test_a_store_removes_a_link_and_not_what_it_leads_to(
    tmp_path: Path, *, is_dangling: bool
) -> None:
    store, target = LocalStore(tmp_path / "store"), tmp_path / "target"
    if not is_dangling:
        save_files(target, {"a": b"1"})
    (tmp_path / "store").mkdir()
    links = [tmp_path / "store" / name for name in ("one", "two", "three/inner")]
    links[2].parent.mkdir()
    for link in links:
        link.symlink_to(target)

    store.delete_tree("one")
    store.discard_tree("two")
    store.delete_tree("three")

    assert [link.is_symlink() for link in links] == [False, False, False]
    assert is_dangling or contents(target) == {"a": b"1"}


# ---------------------------------------------------------------------- what came back


@pytest.fixture
def backup(run_path: Path, files: Path) -> Path:
    """The run as it was before its first checkpoint was retired and swept."""
    backup = run_path.with_name("backup")
    shutil.copytree(run_path, backup)
    with open_run(open_store(run_path)) as run:
        run.retain(Retention(keep=1))
    assert not (run_path / NAME).exists()
    return backup


@pytest.mark.parametrize("with_manifest", [False, True])
def test_a_checkpoint_put_back_from_a_backup_is_left_and_named(
    run_path: Path, backup: Path, caplog: pytest.LogCaptureFixture, *, with_manifest: bool
) -> None:
    caplog.set_level(logging.WARNING)
    shutil.copytree(backup / NAME, run_path / NAME)
    if with_manifest:
        shutil.copy(backup / manifest_key(NAME), run_path / manifest_key(NAME))

    for _ in range(2):
        with open_run(open_store(run_path)) as run:
            litter = sweep(run)
            newest = run.newest_good()
        assert litter == []
        assert newest is not None and newest.step == 2
        assert f"{NAME} is left as it is" in caplog.text
        caplog.clear()

    assert contents(run_path / NAME) == contents(backup / NAME)
    assert NAME in {key.partition("/")[0] for key in verify(look(open_store(run_path))).foreign}


def test_what_was_given_up_and_comes_back_is_litter(run_path: Path, files: Path) -> None:
    """A worker of a driver that was replaced may write after all that was swept."""
    with open_run(open_store(run_path)) as run:
        slot = run.begin_checkpoint(attempt=1)
        sweep(run)
        run.compact()
    save_files(run_path / slot.directory, {"late": b"1"})

    with open_run(open_store(run_path)) as run:
        [litter] = sweep(run)

    assert (litter.key, litter.why) == (slot.directory, "never committed")
    assert not (run_path / slot.directory).exists()

"""What quarantines a checkpoint, what does not, and how it becomes usable again."""

from __future__ import annotations

import logging
import os
import resource
import shutil
from pathlib import Path

import pytest

from holdfast.control.record.open_run import open_run
from holdfast.control.record.run_view import look, verify
from holdfast.errors import RunHeld, StoreBusy, StoreError
from holdfast.storage.local.store import LocalStore
from holdfast.storage.locate import open_store
from tests.runs import commit, save_files


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    """A run with two checkpoints, left in good order."""
    files = save_files(tmp_path / "files", {"model.pt": b"weights", "inner/config": b"{}"})
    for step in (1, 2):
        commit(tmp_path / "run", files, step=step)
    return tmp_path / "run"


def test_a_driver_without_open_files_sets_nothing_aside(run_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open_run(LocalStore(run_path), beats=False) as run:
        top = os.open("/", os.O_RDONLY)  # the lowest number that is free: no other can be had
        os.close(top)
        resource.setrlimit(resource.RLIMIT_NOFILE, (top, hard))
        try:
            with pytest.raises(StoreBusy, match="Too many open files") as raised:
                run.newest_good()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        newest = run.newest_good()

        assert "ulimit -n" in str(raised.value)
        assert run.record.quarantined() == []
        assert newest is not None and newest.step == 2


def test_a_run_that_is_out_of_sight_sets_nothing_aside(run_path: Path) -> None:
    """As when its disk is not mounted any more, while the journal is still open."""
    away = run_path.with_name("away")
    with open_run(LocalStore(run_path), beats=False) as run:
        run.note("said", {})
        run_path.rename(away)
        run_path.mkdir()
        with pytest.raises(StoreError, match="cannot be found any more"):
            run.newest_good()
        run_path.rmdir()
        away.rename(run_path)
        newest = run.newest_good()

        assert newest is not None and newest.step == 2
        assert run.record.quarantined() == []


def test_what_was_set_aside_and_is_whole_again_is_taken_back(
    run_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, away = run_path / "checkpoint_000001" / "model.pt", run_path / "away"
    model.rename(away)
    with open_run(open_store(run_path)) as run:
        newest = run.newest_good()
        assert newest is not None and newest.step == 1
        assert run.readmit() == []
    assert f"holdfast verify --restore {run_path}" in caplog.text
    assert verify(look(open_store(run_path))).restorable == []
    away.rename(model)
    assert verify(look(open_store(run_path))).restorable == ["checkpoint_000001"]

    with open_run(open_store(run_path)) as run:
        assert run.readmit() == ["checkpoint_000001"]
        run.compact()
    with open_run(open_store(run_path)) as run:
        newest = run.newest_good()
        assert newest is not None and newest.step == 2


def test_what_is_set_aside_and_cannot_be_read_stays_so(
    run_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with open_run(LocalStore(run_path), beats=False) as run:
        run.quarantine(1, ["it was unreadable once"])
        monkeypatch.setattr(run.store.local.disk, "open", _denied)  # type: ignore[union-attr]
        caplog.set_level(logging.WARNING)
        assert run.readmit() == []
        monkeypatch.undo()

        assert "stays set aside" in caplog.text
        assert run.readmit() == ["checkpoint_000001"]


def _denied(path: str) -> int:
    raise PermissionError(13, "Permission denied", path)


def test_verify_says_what_it_could_not_read_and_reads_the_rest(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(run_path)
    view, opened = look(store), store.disk.open

    def fails_on_the_newest(path: str) -> int:
        return _denied(path) if "/checkpoint_000001/" in path else opened(path)

    monkeypatch.setattr(store.disk, "open", fails_on_the_newest)
    result = verify(view)

    assert list(result.unread) == ["checkpoint_000001"]
    assert (result.damaged, result.checkpoints) == ({}, 1)


def test_nothing_is_taken_back_from_a_live_driver(run_path: Path) -> None:
    with open_run(open_store(run_path)), pytest.raises(RunHeld):
        open_run(open_store(run_path))


def test_a_missing_checkpoint_folder_is_damage(run_path: Path) -> None:
    shutil.rmtree(run_path / "checkpoint_000001")
    with open_run(open_store(run_path)) as run:
        newest = run.newest_good()

        assert newest is not None and newest.step == 1
        assert [checkpoint.number for checkpoint in run.record.quarantined()] == [1]


@pytest.mark.parametrize("what", ["a folder is a file", "a file is a folder", "a link to itself"])
def test_what_cannot_be_the_file_that_was_saved_is_damage(run_path: Path, what: str) -> None:
    folder = run_path / "checkpoint_000001"
    match what:
        case "a folder is a file":
            shutil.rmtree(folder / "inner")
            (folder / "inner").write_bytes(b"{}")
        case "a file is a folder":
            (folder / "model.pt").unlink()
            (folder / "model.pt").mkdir()
        case _:
            (folder / "model.pt").unlink()
            (folder / "model.pt").symlink_to("model.pt")

    with open_run(LocalStore(run_path), beats=False) as run:
        newest = run.newest_good()

        assert newest is not None and newest.step == 1
        assert [checkpoint.number for checkpoint in run.record.quarantined()] == [1]

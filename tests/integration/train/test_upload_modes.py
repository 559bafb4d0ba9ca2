"""The ways in which a checkpoint reaches storage, and what becomes of the folder it was in."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import train
from holdfast.errors import ConfigError, HoldfastError, NotSaved
from holdfast.train import Checkpoint, CheckpointUploadMode, WorkerGroupError
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import (
    STATE,
    begin,
    die,
    functions_of,
    is_first,
    note,
    wait_for,
)
from tests.patience import pause

ASYNC, NO_UPLOAD = CheckpointUploadMode.ASYNC, CheckpointUploadMode.NO_UPLOAD


def new_folder(step: int) -> str:
    """Return a folder of its own with the state of a step in it, as ASYNC reports want them."""
    folder = tempfile.mkdtemp(prefix="holdfast-test-")
    Path(folder, STATE).write_text(json.dumps({"step": step}))
    return folder


def report_async(step: int, **options: Any) -> str:
    folder = new_folder(step)
    train.report(
        {"step": step},
        Checkpoint.from_directory(folder),
        checkpoint_upload_mode=ASYNC,
        **options,
    )
    return folder


def steps_in(result: train.Result) -> list[int]:
    return [metrics["step"] for _, metrics in result.best_checkpoints]


# ---------------------------------------------------------------------- later


@pytest.mark.parametrize("workers", [1, 2])
def test_async_reports_are_all_committed_when_the_function_returns(lab: Lab, workers: int) -> None:
    def loop() -> None:
        for step in range(6):
            report_async(step)

    result = lab.fit(loop, workers=workers)

    assert steps_in(result) == [0, 1, 2, 3, 4, 5]
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        assert json.loads(Path(folder, STATE).read_text()) == {"step": 5}


def test_async_reports_are_committed_also_when_the_function_raises(lab: Lab) -> None:
    def loop() -> None:
        for step in range(3):
            report_async(step)
        raise ValueError("after the last report")

    with pytest.raises(WorkerGroupError) as caught:
        lab.fit(loop)

    assert caught.value.result is not None
    assert steps_in(caught.value.result) == [0, 1, 2]


def test_an_async_report_takes_the_folder_and_another_mode_leaves_it(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        moved, copied, kept, deleted = report_async(0), "", "", ""
        copied = report_async(1, delete_local_checkpoint_after_upload=False)
        for deletes in (False, True):
            folder = new_folder(2)
            checkpoint = Checkpoint.from_directory(folder)
            train.report({}, checkpoint, delete_local_checkpoint_after_upload=deletes)
            kept, deleted = (kept, folder) if deletes else (folder, deleted)
        left = [os.path.exists(path) for path in (moved, copied, kept, deleted)]
        note(notes, what="left", left=left)
        for path in (copied, kept):
            shutil.rmtree(path)

    lab.fit(loop)

    assert lab.noted("left")[0]["left"] == [False, True, True, False]


def test_files_written_over_after_an_async_report_are_saved_as_they_were(lab: Lab) -> None:
    def loop() -> None:
        folder = new_folder(0)
        for step in range(4):
            Path(folder, STATE).write_text(json.dumps({"step": step}))
            train.report(
                {"step": step},
                Checkpoint.from_directory(folder),
                checkpoint_upload_mode=ASYNC,
                delete_local_checkpoint_after_upload=False,
            )
        shutil.rmtree(folder)

    for checkpoint, metrics in lab.fit(loop).best_checkpoints:
        with checkpoint.as_directory() as folder:
            assert json.loads(Path(folder, STATE).read_text()) == {"step": metrics["step"]}


def test_a_link_in_a_folder_that_is_moved_still_leads_to_its_file(lab: Lab) -> None:
    def loop() -> None:
        outside = new_folder(7)
        folder = tempfile.mkdtemp()
        os.symlink(os.path.relpath(Path(outside, STATE), folder), Path(folder, STATE))
        train.report({}, Checkpoint.from_directory(folder), checkpoint_upload_mode=ASYNC)
        train.get_all_reported_checkpoints()
        shutil.rmtree(outside)

    checkpoint = lab.fit(loop).checkpoint
    assert checkpoint is not None
    with checkpoint.as_directory() as folder:
        assert json.loads(Path(folder, STATE).read_text()) == {"step": 7}


def test_async_reports_wait_when_uploads_do_not_keep_up(lab: Lab) -> None:
    """One is under way and one waits; the third report cannot return before the first is done."""
    notes, gate, run = lab.notes, lab.folder / "gate", lab.run

    def slow(checkpoint: Checkpoint, name: str) -> Checkpoint:
        wait_for(gate)
        shutil.copytree(checkpoint.path, run / name)
        return Checkpoint.from_directory(run / name)

    def loop() -> None:
        for step in range(3):
            if step == 2:
                open_when_blocked(gate)
            report_async(step, checkpoint_upload_fn=slow)
            note(notes, what="returned", step=step, open=gate.exists())

    lab.fit(loop)

    assert [fact["open"] for fact in lab.noted("returned")] == [False, False, True]


def open_when_blocked(gate: Path) -> None:
    """Open a gate once the main thread waits for room in the queue of uploads."""
    main = threading.main_thread().ident
    assert main is not None

    def watch() -> None:
        while functions_of(main)[:2] != ["wait", "put"]:
            pause()
        gate.touch()

    threading.Thread(target=watch, daemon=True).start()


def test_a_failed_async_upload_is_raised_by_the_next_report_which_is_made_nonetheless(
    lab: Lab,
) -> None:
    notes = lab.notes

    def fails(checkpoint: Checkpoint, name: str) -> Checkpoint:
        raise OSError("the bucket is gone")

    def loop() -> None:
        report_async(0, checkpoint_upload_fn=fails)
        train.get_all_reported_checkpoints()
        try:
            report_async(1)
        except HoldfastError as error:
            note(notes, what="raised", text=str(error))
        report_async(2)

    result = lab.fit(loop)

    assert "the bucket is gone" in lab.noted("raised")[0]["text"]
    assert steps_in(result) == [1, 2]


def test_a_failed_async_upload_that_nobody_asked_about_fails_the_function(lab: Lab) -> None:
    def fails(checkpoint: Checkpoint, name: str) -> Checkpoint:
        raise OSError("the bucket is gone")

    def loop() -> None:
        report_async(0, checkpoint_upload_fn=fails)

    with pytest.raises(WorkerGroupError, match="the bucket is gone"):
        lab.fit(loop)


def test_an_async_upload_that_exits_is_not_taken_for_one_that_is_done(lab: Lab) -> None:
    """A thread that exits ends without a word, and whoever waits for it would wait for ever."""

    def upload(checkpoint: Checkpoint, name: str) -> Checkpoint:
        raise SystemExit(3)

    def loop() -> None:
        for step in range(20):
            report_async(step, checkpoint_upload_fn=upload)

    with pytest.raises(WorkerGroupError, match="could not be uploaded: SystemExit: 3"):
        lab.fit(loop)


def test_a_worker_killed_in_an_async_upload_leaves_nothing_behind(lab: Lab) -> None:
    notes = lab.notes

    def dies(checkpoint: Checkpoint, name: str) -> Checkpoint:
        die("SIGKILL")
        return checkpoint

    def loop() -> None:
        for step in range(begin(notes), 3):
            doomed = step == 1 and is_first(notes.with_name("death"))
            report_async(step, checkpoint_upload_fn=dies if doomed else None)

    result = lab.fit(loop, max_failures=1)

    assert steps_in(result) == [0, 1, 2]
    assert list((lab.run / ".holdfast" / "staging").iterdir()) == []


# ---------------------------------------------------------------------- by the user's own code


def test_a_folder_that_user_code_has_put_into_the_run_becomes_a_checkpoint(lab: Lab) -> None:
    run = lab.run

    def loop() -> None:
        for step in range(2):
            folder = run / "mine" / f"step-{step}"
            (folder / "deep").mkdir(parents=True)
            (folder / STATE).write_text(json.dumps({"step": step}))
            (folder / "deep" / "file").write_text("x")
            checkpoint = Checkpoint.from_directory(folder)
            train.report({"step": step}, checkpoint, checkpoint_upload_mode=NO_UPLOAD)

    result = lab.fit(loop)

    assert steps_in(result) == [0, 1]
    assert result.checkpoint is not None
    assert result.checkpoint.path == str(run / "mine" / "step-1")


def test_a_folder_that_is_not_in_the_run_is_refused_and_reporting_goes_on(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        folder = new_folder(0)
        try:
            train.report({}, Checkpoint.from_directory(folder), checkpoint_upload_mode=NO_UPLOAD)
        except ConfigError as error:
            note(notes, what="refused", text=str(error))
        train.report({"step": 1}, Checkpoint.from_directory(folder))
        shutil.rmtree(folder)

    assert steps_in(lab.fit(loop)) == [1]
    assert "is not below the run's folder" in lab.noted("refused")[0]["text"]


def test_ranks_upload_their_parts_themselves_into_one_folder(lab: Lab) -> None:
    run = lab.run

    def upload(checkpoint: Checkpoint, name: str) -> Checkpoint:
        shutil.copytree(checkpoint.path, run / name, dirs_exist_ok=True)
        return Checkpoint.from_directory(run / name)

    def loop() -> None:
        rank = train.get_context().get_world_rank()
        folder = tempfile.mkdtemp()
        Path(folder, f"shard-{rank}").write_text(str(rank))
        train.report({}, Checkpoint.from_directory(folder), checkpoint_upload_fn=upload)
        shutil.rmtree(folder)

    checkpoint = lab.fit(loop, workers=2).checkpoint
    assert checkpoint is not None
    with checkpoint.as_directory() as folder:
        assert sorted(os.listdir(folder)) == ["shard-0", "shard-1"]


def test_ranks_that_put_their_parts_into_different_folders_are_told(lab: Lab) -> None:
    run, notes = lab.run, lab.notes

    def loop() -> None:
        rank = train.get_context().get_world_rank()
        folder = run / f"of-{rank}"
        folder.mkdir()
        (folder / "file").write_text("x")
        try:
            train.report({}, Checkpoint.from_directory(folder), checkpoint_upload_mode=NO_UPLOAD)
        except NotSaved as error:
            note(notes, what="refused", text=str(error))

    result = lab.fit(loop, workers=2)

    assert result.checkpoint is None
    assert len(lab.noted("refused")) == 2
    assert "of-0, of-1" in lab.noted("refused")[0]["text"]


# ---------------------------------------------------------------------- what is kept


def test_all_reported_checkpoints_are_listed_as_soon_as_they_are_reported(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        for step in range(3):
            report_async(step)
            kept = train.get_all_reported_checkpoints(train.CheckpointConsistencyMode.COMMITTED)
            note(notes, what="kept", steps=[one.metrics["step"] for one in kept])

    lab.fit(loop)

    assert [fact["steps"] for fact in lab.noted("kept")] == [[0], [0, 1], [0, 1, 2]]

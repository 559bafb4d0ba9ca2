"""Where training functions put checkpoints of their own, and how ranks share a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.errors import ConfigError, NotSaved
from holdfast.train import Checkpoint, CheckpointUploadMode
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import folder_with, note, wait_for

NO_UPLOAD, SYNC, ASYNC = (
    CheckpointUploadMode.NO_UPLOAD,
    CheckpointUploadMode.SYNC,
    CheckpointUploadMode.ASYNC,
)


def write_in_place(name: str, **files: str) -> str:
    """Write files where a checkpoint of that name belongs, and return the folder."""
    folder = train.get_context().get_storage().build_checkpoint_path_from_name(name)
    os.makedirs(folder, exist_ok=True)
    for file, text in files.items():
        Path(folder, file).write_text(text)
    return folder


def files_of(result: train.Result) -> dict[str, str]:
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        found = [path for path in Path(folder).rglob("*") if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


def test_a_run_says_where_a_checkpoint_of_a_name_belongs(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        storage = train.get_context().get_storage()
        folder = write_in_place("mine", state="1")
        found = storage.storage_filesystem.get_file_info(folder)
        note(
            notes,
            what="storage",
            path=storage.storage_path,
            experiment=storage.experiment_fs_path,
            there=found.type.name,
        )
        train.report({}, Checkpoint(folder), checkpoint_upload_mode=NO_UPLOAD)

    result = lab.fit(loop)

    assert result.checkpoint is not None
    assert result.checkpoint.path == str(lab.run / "mine")
    [fact] = lab.noted("storage")
    assert fact["path"] == str(lab.storage) and fact["experiment"] == str(lab.run)
    assert fact["there"] == "Directory"


def test_the_name_given_to_a_report_does_not_count_for_a_folder_in_its_place(lab: Lab) -> None:
    def loop() -> None:
        folder = write_in_place("mine", state="1")
        train.report(
            {}, Checkpoint(folder), checkpoint_dir_name="mine", checkpoint_upload_mode=NO_UPLOAD
        )

    result = lab.fit(loop)

    assert result.checkpoint is not None and result.checkpoint.path == str(lab.run / "mine")


@pytest.mark.parametrize("name", ["", "/etc", "../other", "a/../b", 3])
def test_a_name_that_leads_elsewhere_has_no_place(lab: Lab, name: Any) -> None:
    def loop() -> None:
        with pytest.raises(ConfigError, match="checkpoint_name="):
            train.get_context().get_storage().build_checkpoint_path_from_name(name)

    lab.fit(loop)


def test_a_trial_has_a_place_for_checkpoints_too(tmp_path: Path) -> None:
    def trial(config: dict[str, Any]) -> None:
        storage = tune.get_context().get_storage()
        tune.report({"path": storage.build_checkpoint_path_from_name("mine")})

    [result] = tune.Tuner(
        trial, run_config=train.RunConfig(storage_path=str(tmp_path), name="s")
    ).fit()

    assert result.metrics is not None and result.metrics["path"] == f"{result.path}/mine"


# ---------------------------------------------------------------------- ranks that differ


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
@pytest.mark.parametrize("placing", [0, 1])
@pytest.mark.parametrize("first", [0, 1])
def test_one_rank_writes_in_place_and_another_hands_its_part_over(
    lab: Lab, mode: CheckpointUploadMode, placing: int, first: int
) -> None:
    """Whoever comes first, and also if the files are there long before they are reported."""
    marks = [lab.folder / "mark-0", lab.folder / "mark-1"]

    def loop() -> None:
        rank = train.get_context().get_world_rank()
        if rank == placing:
            folder = write_in_place("mine", placed="p")
            marks[placing].touch()
            if first != placing:
                wait_for(marks[1 - placing])
            train.report({}, Checkpoint(folder), checkpoint_upload_mode=NO_UPLOAD)
            return
        wait_for(marks[placing])
        marks[rank].touch()
        with folder_with({"brought": "b"}) as folder:
            train.report(
                {},
                Checkpoint(folder),
                checkpoint_dir_name="mine",
                checkpoint_upload_mode=mode,
                delete_local_checkpoint_after_upload=False,
            )

    result = lab.fit(loop, workers=2)

    assert result.checkpoint is not None and result.checkpoint.path == str(lab.run / "mine")
    assert files_of(result) == {"placed": "p", "brought": "b"}
    result.checkpoint.verify()


def test_of_two_files_of_one_name_that_of_the_lower_rank_stays(lab: Lab) -> None:
    def loop() -> None:
        if train.get_context().get_world_rank() == 1:
            folder = write_in_place("mine", both="placed", placed="p")
            train.report({}, Checkpoint(folder), checkpoint_upload_mode=NO_UPLOAD)
            return
        with folder_with({"both": "brought"}) as folder:
            train.report({}, Checkpoint(folder), checkpoint_dir_name="mine")

    assert files_of(lab.fit(loop, workers=2)) == {"both": "brought", "placed": "p"}


def test_ranks_that_name_different_folders_are_told_which(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        try:
            if train.get_context().get_world_rank() == 1:
                folder = write_in_place("mine", placed="p")
                train.report({}, Checkpoint(folder), checkpoint_upload_mode=NO_UPLOAD)
            else:
                with folder_with({"brought": "b"}) as folder:
                    train.report({}, Checkpoint(folder), checkpoint_dir_name="yours")
        except NotSaved as error:
            note(notes, what="refused", text=str(error))

    lab.fit(loop, workers=2)

    refused = lab.noted("refused")
    assert len(refused) == 2
    assert all("one folder: mine, yours" in fact["text"] for fact in refused)


def test_files_that_nobody_reports_are_not_mixed_into_a_checkpoint(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> None:
        if train.get_context().get_world_rank() == 1:
            write_in_place("mine", precious="p")
            train.report({})
            return
        wait_for(lab_run / "mine" / "precious")
        with folder_with({"brought": "b"}) as folder:
            try:
                train.report({}, Checkpoint(folder), checkpoint_dir_name="mine")
            except NotSaved as error:
                note(notes, what="refused", text=str(error))

    lab_run = lab.run
    lab.fit(loop, workers=2)

    assert "there are other files of that name" in lab.noted("refused")[0]["text"]
    assert (lab.run / "mine" / "precious").read_text() == "p"


def test_a_part_uploaded_by_user_code_joins_one_that_is_handed_over(lab: Lab) -> None:
    def upload(checkpoint: Checkpoint, name: str) -> Checkpoint:
        return Checkpoint(write_in_place(name, uploaded="u"))

    def loop() -> None:
        rank = train.get_context().get_world_rank()
        with folder_with({"brought": "b"}) as folder:
            train.report({}, Checkpoint(folder), checkpoint_upload_fn=upload if rank else None)

    assert files_of(lab.fit(loop, workers=2)) == {"brought": "b", "uploaded": "u"}

"""Runs on a filesystem that was given: users are shown its paths, not those of the machine."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.fs
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from holdfast import train, tune
from holdfast.train import Checkpoint, CheckpointUploadMode, Result, RunConfig
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import folder_with, note, read_notes
from tests.servers.storage import ACCESS_KEY, SECRET_KEY, S3Server

STATE = "state"


def in_pyarrow(root: Path) -> Any:
    return pyarrow.fs.SubTreeFileSystem(str(root), pyarrow.fs.LocalFileSystem())


def in_fsspec(root: Path) -> Any:
    return DirFileSystem(str(root), LocalFileSystem())


def both_in_one(root: Path) -> Any:
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(in_fsspec(root)))


def is_folder(filesystem: Any, path: str) -> bool:
    if isinstance(filesystem, pyarrow.fs.FileSystem):
        return bool(filesystem.get_file_info(path).type == pyarrow.fs.FileType.Directory)
    return bool(filesystem.isdir(path))


@pytest.mark.parametrize("make", [in_pyarrow, in_fsspec, both_in_one])
@pytest.mark.parametrize("where", ["bucket", "/bucket"])
def test_paths_of_a_run_are_those_of_its_filesystem(
    lab: Lab, tmp_path: Path, make: Callable[[Path], Any], where: str
) -> None:
    mine, notes = make(tmp_path / "disk"), lab.notes
    (tmp_path / "disk").mkdir()

    def loop() -> None:
        folder = Path(notes).with_name("saved")
        folder.mkdir(exist_ok=True)
        (folder / STATE).write_text("1")
        train.report({}, Checkpoint.from_directory(folder))
        again = train.get_checkpoint()
        assert again is not None
        note(notes, what="seen", path=again.path, there=is_folder(again.filesystem, again.path))

    result = lab.fit(loop, storage_path=where, storage_filesystem=mine)

    assert (tmp_path / "disk" / "bucket" / "run").is_dir()
    assert result.path == "bucket/run"
    assert result.filesystem is mine and is_folder(mine, "bucket/run")
    assert result.checkpoint is not None
    assert result.checkpoint.path == "bucket/run/checkpoint_000000"
    assert is_folder(result.checkpoint.filesystem, result.checkpoint.path)
    [seen] = read_notes(notes, "seen")
    assert seen["path"] == "bucket/run/checkpoint_000000" and seen["there"]
    again = pickle.loads(pickle.dumps(result))
    assert is_folder(again.checkpoint.filesystem, again.checkpoint.path)
    with Checkpoint(result.checkpoint.path, filesystem=mine).as_directory() as folder:
        assert Path(folder, STATE).read_text() == "1"
    opened = Result.from_path("bucket/run", storage_filesystem=mine)
    assert opened.path == "bucket/run" and opened.checkpoint is not None
    assert opened.checkpoint.path == "bucket/run/checkpoint_000000"


def test_what_was_put_in_its_place_through_the_filesystem_is_the_checkpoint(
    lab: Lab, tmp_path: Path
) -> None:
    mine = in_pyarrow(tmp_path)

    def loop() -> None:
        mine.create_dir("bucket/run/mine")
        with mine.open_output_stream(f"bucket/run/mine/{STATE}") as file:
            file.write(b"1")
        train.report(
            {},
            Checkpoint("bucket/run/mine", filesystem=mine),
            checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD,
        )

    result = lab.fit(loop, storage_path="bucket", storage_filesystem=mine)

    assert result.checkpoint is not None and result.checkpoint.path == "bucket/run/mine"


def test_paths_of_a_study_are_those_of_its_filesystem(tmp_path: Path) -> None:
    mine = in_pyarrow(tmp_path)

    def trial(config: dict[str, Any]) -> None:
        folder = tmp_path / f"saved-{config['x']}"
        folder.mkdir()
        (folder / STATE).write_text("1")
        tune.report({"x": config["x"]}, checkpoint=Checkpoint.from_directory(folder))

    grid = tune.Tuner(
        trial,
        param_space={"x": tune.grid_search([1, 2])},
        run_config=RunConfig(storage_path="bucket", name="s", storage_filesystem=mine),
    ).fit()

    assert grid.experiment_path == "bucket/s" and is_folder(grid.filesystem, "bucket/s")
    for result in grid:
        assert result.path is not None and result.path.startswith("bucket/s/")
        assert is_folder(result.filesystem, result.path)
        assert result.checkpoint is not None
        assert result.checkpoint.path.startswith(result.path)
        assert is_folder(result.checkpoint.filesystem, result.checkpoint.path)
        again = tune.Result.from_path(result.path, storage_filesystem=mine)
        assert again.path == result.path
    analysis = tune.ExperimentAnalysis("bucket/s", storage_filesystem=mine)
    assert analysis.experiment_path == "bucket/s"


@pytest.mark.s3
def test_a_run_on_a_bucket_that_pyarrow_opens(
    s3_server: S3Server, new_folder: Callable[[], str], lab: Lab
) -> None:
    """How scripts name a server of their own."""
    where = urlsplit(s3_server.url)
    bucket = pyarrow.fs.S3FileSystem(
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        endpoint_override=where.netloc,
        scheme=where.scheme,
        region="us-east-1",
    )
    folder = f"lab/{new_folder()}"

    def loop() -> None:
        if (before := train.get_checkpoint()) is not None:
            with before.as_directory() as saved:
                assert Path(saved, STATE).read_text() == "1"
            return
        with folder_with({STATE: "1"}) as saved:
            train.report({"loss": 1}, Checkpoint.from_directory(saved))

    lab.fit(loop, storage_path=folder, storage_filesystem=bucket)
    result = lab.fit(loop, storage_path=folder, storage_filesystem=bucket)

    assert result.path == f"{folder}/run"
    assert result.checkpoint is not None
    assert result.checkpoint.path == f"{folder}/run/checkpoint_000000"
    assert is_folder(result.checkpoint.filesystem, result.checkpoint.path)
    assert Result.from_path(f"{folder}/run", storage_filesystem=bucket).metrics == {"loss": 1}

"""The path of a run's folder becomes storage path and name, which lead back to the folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.train.restore.restore import RunPlace, run_place


@pytest.mark.parametrize(
    ("path", "storage_path", "name"),
    [
        ("/data/runs/bert-7", "/data/runs", "bert-7"),
        ("/data/runs/bert-7/", "/data/runs", "bert-7"),
        ("/data/runs/../other/x", "/data/other", "x"),
        ("/bert-7", "/", "bert-7"),
        (Path("/data/runs/bert=7"), "/data/runs", "bert=7"),
        ("file:///data/runs/bert-7", "file:///data/runs", "bert-7"),
        ("file:///data/my%20runs/bert%207", "file:///data/my%20runs", "bert 7"),
        ("file:///bert-7", "file:///", "bert-7"),
        ("s3://lab/runs/bert-7", "s3://lab/runs", "bert-7"),
        ("s3://lab/bert-7", "s3://lab", "bert-7"),
        ("s3://lab/bert-7/", "s3://lab", "bert-7"),
        ("s3://lab/runs/x?region=eu&scheme=http", "s3://lab/runs?region=eu&scheme=http", "x"),
        ("s3://lab/x/?endpoint_override=h%2Fp", "s3://lab?endpoint_override=h%2Fp", "x"),
        ("s3://lab/unique_run_id=da823d5", "s3://lab", "unique_run_id=da823d5"),
        ("s3://lab/a%20b", "s3://lab", "a%20b"),
        ("gs://lab/runs/x", "gs://lab/runs", "x"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net", "x"),
        ("memory://lab/runs/x", "memory://lab/runs", "x"),
    ],
)
def test_a_runs_folder_is_split_into_storage_path_and_name(
    path: Any, storage_path: str, name: str
) -> None:
    assert run_place(path) == RunPlace(storage_path, name)


def test_a_relative_path_and_a_home_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/homes/ann")

    assert run_place("runs/x") == RunPlace(str(tmp_path / "runs"), "x")
    assert run_place(".") == RunPlace(str(tmp_path.parent), tmp_path.name)
    assert run_place("~/runs/x") == RunPlace("/homes/ann/runs", "x")


def test_a_path_of_a_filesystem_object_is_not_made_one_of_this_machine() -> None:
    filesystem = object()

    assert run_place("lab/runs/x", filesystem) == RunPlace("lab/runs", "x", filesystem)


@pytest.mark.parametrize("path", ["/", "s3://lab", "s3://lab/", "s3://lab?region=eu", "file:///"])
def test_what_holds_runs_cannot_be_one(path: str) -> None:
    with pytest.raises(ConfigError, match=re.escape("{storage_path}/{name}")) as refused:
        run_place(path)

    assert refused.value.hint


@pytest.mark.parametrize("path", ["", "  ", "s3:/lab/x", b"/data/x", "a\x00b"])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(ConfigError):
        run_place(path)


@pytest.mark.parametrize("path", ["/data/runs/x", "file:///data/my%20runs/a%20b", "memory://l/r/x"])
def test_the_pair_leads_to_the_same_folder(path: str) -> None:
    from holdfast.storage.locate import open_store

    assert run_place(path).store().url == open_store(path).url

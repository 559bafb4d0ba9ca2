"""Logs of runs with remote storage are on this machine, or the run goes on without them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from holdfast.control.host.log_folders import NOWHERE, find_log_folder, log_at, log_folder
from holdfast.errors import ConfigError
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryStore

FAR = MemoryStore()


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("home", "tmp", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOLDFAST_LOG_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # nor is the user known


def test_logs_are_with_the_run_or_on_this_machine_if_the_run_is_far_away(machine: Path) -> None:
    assert log_folder(LocalStore(machine), "r1") == f"{machine}/logs"
    assert find_log_folder(LocalStore(machine), "r1") == f"{machine}/logs"

    folder = log_folder(FAR, "r1")
    assert folder == f"{machine}/home/.cache/holdfast/logs/r1"
    assert os.stat(folder).st_mode & 0o777 == 0o700
    assert find_log_folder(FAR, "r1") == folder
    assert log_at(folder, "a", "b.log") == f"{folder}/a/b.log"


def test_the_users_own_cache_folder_counts(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", f"{machine}/cache")
    folder = log_folder(FAR, "r1")
    assert folder == f"{machine}/cache/holdfast/logs/r1"

    monkeypatch.setenv("XDG_CACHE_HOME", "cache")  # relative ones are to be ignored
    assert log_folder(FAR, "r1") == f"{machine}/home/.cache/holdfast/logs/r1"


def test_without_a_home_logs_are_in_a_private_folder_for_temporary_files(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_home(monkeypatch)

    folder = log_folder(FAR, "r1")

    assert folder == f"{machine}/tmp/holdfast-{os.geteuid()}/logs/r1"
    assert find_log_folder(FAR, "r1") == folder
    assert not (machine / "~").exists()


def test_a_home_whose_folder_others_can_write_to_is_passed_over(machine: Path) -> None:
    path = machine / "home/.cache/holdfast"
    path.mkdir(parents=True)
    path.chmod(0o777)

    assert log_folder(FAR, "r1") == f"{machine}/tmp/holdfast-{os.geteuid()}/logs/r1"


def test_without_any_place_the_run_goes_on_and_that_is_said(
    machine: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (machine / "home/.cache").write_text("a file")
    monkeypatch.setattr(tempfile, "tempdir", str(machine / "tmp/gone"))

    folder = log_folder(FAR, "r1")

    assert folder == NOWHERE
    assert log_at(folder, "attempt-1", "rank-0.log") == NOWHERE
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("what workers print is lost: ")
    assert "HOLDFAST_LOG_DIR" in caplog.messages[0]
    assert find_log_folder(FAR, "r1") == f"{machine}/home/.cache/holdfast/logs/r1"


def test_what_was_said_is_done_or_refused(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LOG_DIR", f"{machine}/chosen")
    assert log_folder(FAR, "r1") == f"{machine}/chosen/r1"
    assert find_log_folder(FAR, "r1") == f"{machine}/chosen/r1"

    (machine / "file").touch()
    monkeypatch.setenv("HOLDFAST_LOG_DIR", f"{machine}/file")
    with pytest.raises(ConfigError, match=r"HOLDFAST_LOG_DIR=.*/file: logs cannot be written"):
        log_folder(FAR, "r1")

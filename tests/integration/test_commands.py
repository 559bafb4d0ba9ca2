"""The `holdfast` command as a user meets it: what it prints and how it exits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.commit import deliver
from holdfast.cli import main
from holdfast.control.record.open_run import open_run
from holdfast.storage.locate import open_store
from tests.runs import commit, commit_to, save_files


class Ran:
    """What one run of the command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return save_files(tmp_path / "files", {"model.pt": b"weights", "inner/config": b"{}"})


@pytest.fixture
def storage(tmp_path: Path, files: Path) -> Path:
    """Storage with a run of two checkpoints, left in good order."""
    storage = tmp_path / "storage"
    for step in (10, 20):
        commit(storage / "bert-7", files, step=step, metrics={"loss": 1 / step})
    return storage


@pytest.fixture
def holdfast(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: object) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)

    return run


def test_ls_names_every_run_with_its_state(holdfast: Any, storage: Path, files: Path) -> None:
    (storage / "not-a-run").mkdir()
    with open_run(open_store(storage / "live")) as live:
        commit_to(live, files)
        ran = holdfast("ls", storage)

    rows = [line.split() for line in ran.out.splitlines()]
    assert ran.code == 0
    assert rows[0][:4] == ["NAME", "KIND", "STATUS", "CHECKPOINTS"]
    assert rows[1][:6] == ["bert-7", "train", "closed", "2", "checkpoint_000001", "20"]
    assert rows[2][:4] == ["live", "train", "held", "1"]
    assert len(rows) == 3


def test_ls_shows_a_run_it_cannot_read_beside_the_others(
    holdfast: Any, storage: Path, files: Path
) -> None:
    commit(storage / "broken", files)
    (storage / "broken" / ".holdfast" / "run.json").write_bytes(b"{}")

    ran = holdfast("ls", storage, "--json")

    assert [(row["name"], row["state"]) for row in ran.json["runs"]] == [
        ("bert-7", "closed"),
        ("broken", "unreadable"),
    ]


def test_ls_of_nothing_says_so(holdfast: Any, tmp_path: Path) -> None:
    assert holdfast("ls", tmp_path).out == f"no runs at {tmp_path}\n"


def test_show_prints_the_checkpoints_and_who_held_the_run(holdfast: Any, storage: Path) -> None:
    ran = holdfast("show", storage / "bert-7")

    assert ran.code == 0
    assert "state  closed" in ran.out
    assert "last held by" in ran.out
    assert ["checkpoint_000001", "20"] in [line.split()[:2] for line in ran.out.splitlines()]
    assert "loss=0.05" in ran.out


def test_show_tells_an_interrupted_run_from_a_closed_one(
    holdfast: Any, storage: Path, files: Path
) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from holdfast.control.record.open_run import open_run\n"
        "from holdfast.storage.locate import open_store\n"
        "from tests.runs import commit_to\n"
        "run = open_run(open_store(sys.argv[1]))\n"
        "commit_to(run, Path(sys.argv[2]), metrics={'x': float('nan')})\n"
        "os._exit(9)\n"
    )
    command = [sys.executable, "-c", script, str(storage / "killed"), str(files)]
    assert subprocess.run(command, check=False).returncode == 9

    ran = holdfast("show", storage / "killed", "--json")

    assert ran.json["state"] == "interrupted"
    assert ran.json["checkpoints"][0]["metrics"] == {"x": "nan"}


def test_verify_of_a_whole_run_exits_0(holdfast: Any, storage: Path) -> None:
    ran = holdfast("verify", storage / "bert-7")

    assert ran.code == 0
    assert ran.out.startswith("whole: ")
    assert "2 checkpoints, 4 files" in ran.out


def test_verify_names_what_is_damaged_and_where_the_run_would_resume(
    holdfast: Any, storage: Path
) -> None:
    run = storage / "bert-7"
    (run / "checkpoint_000001" / "model.pt").write_bytes(b"weightz")
    (run / "checkpoint_000000" / "note.txt").write_text("mine")

    ran = holdfast("verify", run)

    assert ran.code == 1
    assert "damaged      checkpoint_000001: model.pt does not match its digest" in ran.out
    assert "not ours     checkpoint_000000/note.txt" in ran.out
    assert "The run resumes from checkpoint_000000." in ran.out
    assert holdfast("verify", run, "--json").json["damaged"] == {
        "checkpoint_000001": ["model.pt does not match its digest"]
    }


def test_verify_sees_a_missing_manifest_and_a_cut_journal(holdfast: Any, storage: Path) -> None:
    run = storage / "bert-7"
    (run / ".holdfast" / "manifests" / "checkpoint_000000.json").unlink()
    segment = max((run / ".holdfast" / "journal").iterdir())
    segment.write_bytes(segment.read_bytes()[:-200])

    damaged = holdfast("verify", run, "--json").json["damaged"]

    assert damaged[".holdfast/manifests/checkpoint_000000.json"] == ["the manifest is missing"]
    assert any("missing" in line for line in damaged[".holdfast/journal"])


def test_gc_says_what_it_would_remove_and_then_removes_just_that(
    holdfast: Any, storage: Path, files: Path
) -> None:
    run = storage / "bert-7"
    with open_run(open_store(run)) as held:
        slot = held.begin_checkpoint(attempt=1)
        deliver(held.store, slot, 0, files)
    (run / "my-notes").mkdir()
    (run / ".holdfast" / ".0123.hf-tmp").write_bytes(b"half a put")

    planned = holdfast("gc", run, "--dry-run", "--json").json
    staged = ".holdfast/staging/000002-000003-0"
    assert {one["key"] for one in planned["litter"]} == {staged, ".holdfast/.0123.hf-tmp"}
    assert (run / staged).exists()

    done = holdfast("gc", run, "--json").json
    assert done["litter"] == planned["litter"]
    assert not (run / staged).exists()
    assert (run / "my-notes").exists()
    assert holdfast("verify", run).code == 0
    assert holdfast("gc", run).out.startswith("removed 0 objects")


def test_gc_refuses_while_a_driver_holds_the_run(holdfast: Any, storage: Path) -> None:
    with open_run(open_store(storage / "bert-7")):
        ran = holdfast("gc", storage / "bert-7")

    assert ran.code == 3
    assert "is held by" in ran.err


@pytest.mark.parametrize("command", ["show", "verify", "gc"])
def test_a_wrong_place_is_an_error_that_names_a_right_one(
    holdfast: Any, storage: Path, command: str
) -> None:
    ran = holdfast(command, storage)

    assert ran.code == 3
    assert "is not a run but holds 1: bert-7" in ran.err
    assert f"such as {storage}/bert-7" in ran.err
    assert not (storage / ".holdfast").exists()


def test_a_scheme_nobody_knows_is_an_error(holdfast: Any) -> None:
    ran = holdfast("ls", "ftp://somewhere/runs")

    assert ran.code == 3
    assert "ftp" in ran.err
    assert "Try:" in ran.err


def test_the_command_is_installed() -> None:
    command = [sys.executable, "-m", "holdfast.cli", "--version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)

    assert ran.stdout.startswith("holdfast, version 0.")


def test_verify_takes_back_what_is_whole_again_when_it_is_told_to(
    holdfast: Any, storage: Path
) -> None:
    run = storage / "bert-7"
    with open_run(open_store(run)) as held:
        held.quarantine(1, ["cannot read model.pt: Input/output error"])
        refused = holdfast("verify", "--restore", run)
    looked = holdfast("verify", run)
    restored = holdfast("verify", "--restore", run)
    after = holdfast("verify", "--json", run)

    assert refused.code == 3 and "is held by" in refused.err
    assert "Input/output error; it is whole now" in looked.out
    assert f"Try: holdfast verify --restore {run}" in looked.out
    assert "restored     checkpoint_000001" in restored.out
    assert (restored.code, after.json["quarantined"], after.json["checkpoints"]) == (0, {}, 2)


def test_verify_restores_nothing_where_there_is_no_run(holdfast: Any, tmp_path: Path) -> None:
    ran = holdfast("verify", "--restore", tmp_path / "nowhere")

    assert ran.code == 3
    assert not (tmp_path / "nowhere").exists()

"""The `holdfast` command on the folders of studies and their trials: ls, show, logs, gc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.control.study import journal as study_journal
from holdfast.journal import journal
from tests.integration.tune.commands import Holdfast, search, stopped_search, trial_folders
from tests.integration.tune.conftest import Lab


@pytest.fixture
def holdfast(capsys: pytest.CaptureFixture[str]) -> Holdfast:
    return Holdfast(capsys)


def test_ls_tells_of_a_study_how_its_trials_went_and_which_is_best(
    lab: Lab, holdfast: Holdfast
) -> None:
    search(lab, failing=1)

    [row] = holdfast("ls", lab.storage, "--json").json["runs"]
    text = holdfast("ls", lab.storage).out

    assert (row["kind"], row["status"], row["checkpoints"]) == ("tune", "failed trials", 4)
    assert (row["trials"], row["counts"]) == (3, {"TERMINATED": 2, "ERROR": 1})
    assert row["best"]["name"].endswith("_00000") and row["best"]["value"] == 2
    assert "3 (2 TERMINATED, 1 ERROR)" in text and "loss=2" in text


def test_show_tells_of_a_study_its_trials_its_best_and_what_failed(
    lab: Lab, holdfast: Holdfast
) -> None:
    train = search(lab, failing=1)

    ran = holdfast("show", lab.study)

    assert ran.code == 0
    assert ran.fact("state") == "failed trials"
    assert ran.fact("trials") == "3 of 3 done (2 TERMINATED, 1 ERROR)"
    assert ran.fact("metric") == "loss, min is best"
    assert (ran.fact("best") or "").endswith("_00000, loss=2 with x=0")
    assert "raised RuntimeError: not this one" in ran.out
    again = f"Tuner.restore('{lab.study}', {train.__name__}, resume_errored=True).fit()"
    assert f"To try again what failed: {again}" in ran.out
    assert "To go on" not in ran.out
    facts = holdfast("show", lab.study, "--json").json
    assert [one["status"] for one in facts["trials"]] == ["TERMINATED", "ERROR", "TERMINATED"]
    assert [len(one["checkpoints"]) for one in facts["trials"]] == [2, 0, 2]


def test_show_caps_the_trials_of_a_large_study_but_not_in_json(
    lab: Lab, holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_journal, "STATE_AFTER", 20)
    monkeypatch.setattr(study_journal, "ARCHIVE_AFTER", 5)

    def train(config: dict[str, Any]) -> None:
        tune.report({"y": config["x"]})

    lab.fit(train, {"x": tune.grid_search(list(range(30)))}, tune={"reuse_actors": True})

    ran = holdfast("show", lab.study)

    assert "… 10 more trials not shown (10 TERMINATED)" in ran.out
    facts = holdfast("show", lab.study, "--json").json
    assert [one["last_result"]["y"] for one in facts["trials"]] == list(range(30))


def test_show_says_how_an_interrupted_study_goes_on(lab: Lab, holdfast: Holdfast) -> None:
    train = stopped_search(lab)

    ran = holdfast("show", lab.study)

    assert ran.fact("state") == "interrupted"
    assert f"To go on: Tuner.restore('{lab.study}', {train.__name__}).fit()" in ran.out
    trials = holdfast("show", lab.study, "--json").json["trials"]
    assert [one["status"] for one in trials[:2]] == ["TERMINATED", "PENDING"]
    assert trials[1]["cut_off"]
    lab.restore(train)
    assert holdfast("show", lab.study).fact("state") == "done"


def test_the_folder_of_a_trial_is_shown_as_a_trial_of_its_study(
    lab: Lab, holdfast: Holdfast
) -> None:
    search(lab)
    folder = trial_folders(lab)[1]

    ran = holdfast("show", folder)

    assert ran.fact("of study") == f"study at {lab.study}, done"
    assert ran.fact("state") == "TERMINATED"
    assert "checkpoint_000001  2" in ran.out
    facts = holdfast("show", folder, "--json").json
    assert (facts["kind"], facts["params"], facts["step"]) == ("trial", {"x": 1}, 2)


def test_a_folder_of_a_study_that_is_no_trial_is_said_to_be_none(
    lab: Lab, holdfast: Holdfast
) -> None:
    search(lab)
    (lab.study / "notes").mkdir()

    ran = holdfast("show", lab.study / "notes")

    assert ran.code == 3
    assert "study 'study' has no trial 'notes'" in ran.err


def test_logs_prints_what_trials_have_printed(lab: Lab, holdfast: Holdfast) -> None:
    search(lab, failing=2)
    trials = holdfast("show", lab.study, "--json").json["trials"]

    all_, one = holdfast("logs", lab.study), holdfast("logs", lab.study, trials[1]["trial"])

    heads = [line for line in all_.out.splitlines() if line.startswith("==> ")]
    assert [head.split()[1] for head in heads] == [trials[n]["name"] for n in (2, 0, 1)]
    assert one.out == "x is 1\n"
    assert holdfast("logs", trial_folders(lab)[1]).out == "x is 1\n"
    rows = holdfast("logs", lab.study, "--json").json["logs"]
    assert [row["lines"][0] for row in rows] == ["x is 0", "x is 1", "x is 2"]
    assert holdfast("logs", lab.study, "nobody").code == 3
    assert holdfast("logs", lab.study, trials[0]["name"], "--attempt", 7).code == 3


# ---------------------------------------------------------------------- gc


def plant(folder: Path) -> Path:
    """Leave what a crash leaves: files that were staged and never committed."""
    staged = folder / ".holdfast" / "staging" / "000007-1"
    staged.mkdir(parents=True)
    (staged / "state.json").write_bytes(b"half")
    return staged


def test_gc_removes_what_crashes_left_in_the_folders_of_trials(
    lab: Lab, holdfast: Holdfast
) -> None:
    search(lab)
    folder = trial_folders(lab)[0]
    staged = plant(folder)
    (folder / "mine.txt").write_text("keep")
    key = f"{folder.name}/.holdfast/staging/000007-1"

    dry = holdfast("gc", "--dry-run", lab.study)

    assert dry.out.splitlines()[0] == f"  {key} (4 B): staged and never committed"
    assert staged.exists()
    assert f"litter       {key}" in holdfast("verify", lab.study).out
    ran = holdfast("gc", lab.study, "--json")
    assert [one["key"] for one in ran.json["litter"]] == [key]
    assert not staged.exists() and (folder / "mine.txt").exists()
    assert holdfast("verify", lab.study).code == 0
    assert holdfast("gc", lab.study).out == f"removed 0 objects, 0 B, from {lab.study}\n"


def test_a_study_loses_nothing_when_gc_shortens_its_journal(
    lab: Lab, holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = stopped_search(lab)
    before = holdfast("show", lab.study, "--json").json["trials"]
    monkeypatch.setattr(journal, "COMPACT_SEGMENTS", -1)

    assert holdfast("gc", lab.study).code == 0

    assert holdfast("show", lab.study, "--json").json["trials"] == before
    assert len(lab.restore(train)) == 3


def test_gc_of_a_trial_points_to_its_study(lab: Lab, holdfast: Holdfast) -> None:
    search(lab)

    ran = holdfast("gc", trial_folders(lab)[0])

    assert ran.code == 3
    assert f"Try: holdfast gc {lab.study}" in ran.err


# ---------------------------------------------------------------------- whose code runs


OWN_JUDGE = """
from pathlib import Path
from holdfast.tune.schedulers import FIFOScheduler
Path(__file__).with_name("imported").touch()
class Judge(FIFOScheduler):
    pass
"""


def test_looking_at_a_study_runs_no_code_of_its_user(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_judge.py").write_text(OWN_JUDGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_judge  # type: ignore[import-not-found]

    lab.fit(lambda config: tune.report({"y": 1}), tune={"scheduler": own_judge.Judge()})
    (tmp_path / "imported").unlink()

    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-m", "holdfast.cli", "show", str(lab.study)]
    ran = subprocess.run(
        command, env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )

    assert "Judge()" in ran.stdout
    assert "1 of 1 done (1 TERMINATED)" in ran.stdout
    assert not (tmp_path / "imported").exists()


def test_a_trial_that_reported_nothing_has_no_result_to_show(lab: Lab, holdfast: Holdfast) -> None:
    lab.fit(lambda config: None)
    [folder] = trial_folders(lab)

    assert holdfast("show", folder).fact("state") == "TERMINATED"
    assert "last result" not in holdfast("show", folder).out


def test_the_best_by_the_number_that_trials_return_is_shown(lab: Lab, holdfast: Holdfast) -> None:
    lab.fit(lambda config: config["x"], {"x": tune.grid_search([1, 2])}, tune={"mode": "max"})

    assert (holdfast("show", lab.study).fact("best") or "").endswith("_00001, _metric=2 with x=2")
    [row] = holdfast("ls", lab.storage, "--json").json["runs"]
    assert row["best"]["value"] == 2

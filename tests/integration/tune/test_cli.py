"""The `holdfast` command on the folders of studies and their trials."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.control import study_journal
from holdfast.journal import journal
from holdfast.storage.locate import open_store
from holdfast.tune.schedulers import ASHAScheduler
from holdfast.tune.study_looking import StudyLook, look_at_study
from holdfast.tune.study_upkeep import find_study_litter, verify_study
from tests.integration.train.loops import is_first
from tests.integration.tune.conftest import Lab
from tests.integration.tune.trainables import begin, save

pytestmark = pytest.mark.timeout(120)

REUSE = {"reuse_actors": True, "max_concurrent_trials": 1}


class Ran:
    """What one run of the command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def fact(self, name: str) -> str | None:
        """Return what is printed beside a name."""
        lines = [line.strip() for line in self.out.splitlines()]
        return next((x.removeprefix(f"{name}  ") for x in lines if x.startswith(f"{name}  ")), None)


Holdfast = Callable[..., Ran]


@pytest.fixture
def holdfast(capsys: pytest.CaptureFixture[str]) -> Holdfast:
    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)

    return run


def search(lab: Lab, *, failing: int | None = None) -> Any:
    """Return a trainable after three trials of two checkpoints each, one of them failed if told."""
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        print("x is", config["x"])  # noqa: T201
        for step in range(begin(notes), 3):
            if config["x"] == failing:
                raise RuntimeError("not this one")
            save(step, {"loss": 10 * config["x"] + step})

    space = {"x": tune.grid_search([0, 1, 2])}
    lab.fit(train, space, tune={"metric": "loss", "mode": "min", **REUSE})
    return train


def stopped_search(lab: Lab) -> Any:
    """Return a trainable whose driver was told to stop while the second of three trials ran."""
    notes, driver = lab.notes, os.getpid()

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            if config["x"] == 1 and step == 3 and is_first(notes.with_name("stop")):
                os.kill(driver, signal.SIGINT)
                signal.pause()
            save(step, {"loss": config["x"]})

    space = {"x": tune.grid_search([0, 1, 2])}
    lab.fit(train, space, tune=REUSE)
    return train


def trial_folders(lab: Lab) -> list[Path]:
    return sorted(one for one in lab.study.iterdir() if not one.name.startswith("."))


def flip(file: Path, place: int = 0) -> None:
    """Damage one byte."""
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(bytes(data))


# ---------------------------------------------------------------------- verify


def test_verify_reads_the_checkpoints_of_all_trials(lab: Lab, holdfast: Holdfast) -> None:
    search(lab)

    ran = holdfast("verify", lab.study)

    assert ran.code == 0
    assert ran.out == f"whole: {lab.study} (3 trials, 6 checkpoints, 6 files, 66 B read)\n"
    facts = holdfast("verify", lab.study, "--json").json
    assert (facts["trials"], facts["checkpoints"], facts["damaged"]) == (3, 6, {})


def test_verify_finds_one_wrong_byte_in_a_checkpoint_of_a_trial(
    lab: Lab, holdfast: Holdfast
) -> None:
    search(lab)
    bad = trial_folders(lab)[1]
    flip(bad / "checkpoint_000001" / "state.json")

    ran = holdfast("verify", lab.study)

    assert ran.code == 1
    assert ran.out.startswith(f"DAMAGED: {lab.study} (3 trials, 6 checkpoints")
    where = f"{bad.name}/checkpoint_000001"
    assert f"damaged      {where}: state.json does not match its digest" in ran.out
    of_trial = holdfast("verify", bad, "--json")
    assert of_trial.code == 1
    assert list(of_trial.json["damaged"]) == ["checkpoint_000001"]
    assert holdfast("verify", trial_folders(lab)[0]).code == 0


def test_verify_says_from_where_an_unfinished_trial_goes_on(lab: Lab, holdfast: Holdfast) -> None:
    stopped_search(lab)
    cut_off = trial_folders(lab)[1]
    flip(cut_off / "checkpoint_000001" / "state.json")

    ran = holdfast("verify", lab.study)

    assert ran.code == 1
    assert "_00001 resumes from checkpoint_000000." in ran.out
    assert "The trial resumes from checkpoint_000000." in holdfast("verify", cut_off).out


def test_verify_finds_checkpoints_of_trials_that_the_journal_has_lost(
    lab: Lab, holdfast: Holdfast
) -> None:
    search(lab)
    shutil.rmtree(lab.study / ".holdfast" / "journal")
    bad = trial_folders(lab)[2]
    flip(bad / "checkpoint_000000" / "state.json")

    ran = holdfast("verify", lab.study, "--json")

    assert ran.code == 1
    assert (ran.json["trials"], ran.json["checkpoints"], ran.json["litter"]) == (3, 6, [])
    assert set(ran.json["damaged"]) == {".holdfast/journal", f"{bad.name}/checkpoint_000000"}


def test_a_damaged_archive_is_told_and_the_rest_is_shown(
    lab: Lab, holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_journal, "ARCHIVE_AFTER", 1)
    search(lab)
    [archive] = (lab.study / ".holdfast" / "trials").glob("*.jsonl")
    flip(archive, 40)

    shown, verified = holdfast("show", lab.study, "--json"), holdfast("verify", lab.study)

    assert [trial["number"] for trial in shown.json["trials"]] == [1, 2]
    assert shown.json["counts"] == {"TERMINATED": 3}
    assert list(shown.json["damage"]) == [".holdfast/trials/000000.jsonl"]
    assert "! .holdfast/trials/000000.jsonl: line 1: " in holdfast("show", lab.study).out
    assert verified.code == 1
    assert "(3 trials, 6 checkpoints" in verified.out
    assert "3 (3 TERMINATED, damaged)" in holdfast("ls", lab.storage).out


def test_a_damaged_description_of_the_study_is_told(lab: Lab, holdfast: Holdfast) -> None:
    search(lab)
    flip(lab.study / ".holdfast" / "study.json", 40)

    ran = holdfast("show", lab.study)

    assert ran.code == 0
    assert "! .holdfast/study.json: " in ran.out
    assert ran.fact("trials") == "3 of 3 done (3 TERMINATED)"
    assert holdfast("verify", lab.study).code == 1


@pytest.mark.parametrize("what", ["damaged", "missing"])
def test_a_study_is_known_without_the_record_of_its_kind(
    lab: Lab, holdfast: Holdfast, what: str
) -> None:
    search(lab)
    record = lab.study / ".holdfast" / "run.json"
    record.write_bytes(b"{}") if what == "damaged" else record.unlink()

    ran = holdfast("verify", lab.study)

    assert ran.code == 1
    assert "(3 trials, 6 checkpoints" in ran.out
    assert "damaged      .holdfast/run.json" in ran.out


# ---------------------------------------------------------------------- ls, show, logs


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
    assert holdfast("gc", lab.study).out == f"removed 0 things, 0 B, from {lab.study}\n"


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


# ---------------------------------------------------------------------- beside a live driver


class Onlooking(tune.Callback):
    """Looks at the study at every result, as somebody else would."""

    def __init__(self, study: Path, looks: list[StudyLook]) -> None:
        self._study, self._looks = study, looks

    def on_trial_result(
        self, iteration: int, trials: Sequence[Any], trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        del iteration, trials, trial, result
        self._looks.append(look_at_study(open_store(self._study)))


def test_a_live_study_is_seen_as_it_is_beside_its_driver(lab: Lab) -> None:
    """A trial that was lost and runs again is running, not failed."""
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 5):
            if step == 2 and is_first(notes.with_name("loss")):
                raise RuntimeError("the first time only")
            save(step)

    looks: list[StudyLook] = []
    results = lab.fit(
        train,
        max_failures=1,
        tune={"metric": "step", "mode": "max", "scheduler": ASHAScheduler(max_t=100)},
        callbacks=[Onlooking(lab.study, looks)],
    )

    assert results.num_errors == 0
    assert [look.status for look in looks] == ["running"] * 4
    last = looks[-1]
    assert (last.counts, last.trials[0].run.attempts) == ({"RUNNING": 1}, 2)
    assert (last.run.journal_damage, last.damage, last.unsure) == ([], {}, None)


def test_a_checkpoint_that_its_driver_removes_meanwhile_is_not_damaged(lab: Lab) -> None:
    notes, found = lab.notes, list[Any]()

    class Late(tune.Callback):
        """Verifies what was there at the result before."""

        look: StudyLook | None = None

        def on_trial_result(self, *_: Any, **__: Any) -> None:
            if self.look is not None:
                found.append(verify_study(self.look).damaged)
                found.append(find_study_litter(self.look))
            self.look = look_at_study(open_store(lab.study))

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 6):
            save(step)

    lab.fit(
        train,
        checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        callbacks=[Late()],
    )

    assert len(found) == 8
    assert not any(found)


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

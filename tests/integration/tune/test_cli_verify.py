"""`holdfast verify` on studies: all damage is found, whatever else is lost, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.control.record.open_run import OpenStudy
from holdfast.control.study import journal as study_journal
from holdfast.storage.locate import open_store
from holdfast.tune.results.study_view import StudyInspection, inspect_study
from holdfast.tune.results.upkeep import find_study_litter, verify_study
from holdfast.tune.schedulers import ASHAScheduler
from tests.integration.train.loops import is_first
from tests.integration.tune.commands import Holdfast, flip, search, stopped_search, trial_folders
from tests.integration.tune.conftest import Lab
from tests.integration.tune.trainables import begin, save


@pytest.fixture
def holdfast(capsys: pytest.CaptureFixture[str]) -> Holdfast:
    return Holdfast(capsys)


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
    monkeypatch.setattr(study_journal, "ARCHIVE_AFTER", 3)
    search(lab)
    [archive] = (lab.study / ".holdfast" / "trials").glob("*.jsonl")
    flip(archive, 40)

    shown, verified = holdfast("show", lab.study, "--json"), holdfast("verify", lab.study)

    assert [trial["number"] for trial in shown.json["trials"]] == [1, 2]
    assert shown.json["counts"] == {"TERMINATED": 3}
    key = f".holdfast/trials/{archive.name}"
    assert list(shown.json["damage"]) == [key]
    assert f"! {key}: line 1: " in holdfast("show", lab.study).out
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


# ---------------------------------------------------------------------- beside a live driver


class Onlooking(tune.Callback):
    """Looks at the study at every result, as somebody else would."""

    def __init__(self, study: Path, looks: list[StudyInspection]) -> None:
        self._study, self._looks = study, looks

    def on_trial_result(
        self, iteration: int, trials: Sequence[Any], trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        del iteration, trials, trial, result
        self._looks.append(inspect_study(open_store(self._study)))


def test_a_live_study_is_seen_as_it_is_beside_its_driver(lab: Lab) -> None:
    """A trial that was lost and runs again is running, not failed."""
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 5):
            if step == 2 and is_first(notes.with_name("loss")):
                raise RuntimeError("the first time only")
            save(step)

    looks: list[StudyInspection] = []
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

        look: StudyInspection | None = None

        def on_trial_result(self, *_: Any, **__: Any) -> None:
            if self.look is not None:
                found.append(verify_study(self.look).damaged)
                found.append(find_study_litter(self.look))
            self.look = inspect_study(open_store(lab.study))

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


def test_verify_takes_back_checkpoints_of_trials_that_are_whole(
    lab: Lab, holdfast: Holdfast
) -> None:
    """Of trials that go on, and of those that are over."""
    stopped_search(lab)
    trials = inspect_study(open_store(lab.study)).trials
    with OpenStudy.open(open_store(lab.study)) as run:
        for trial in trials:
            for kept in trial.checkpoints.usable():
                facts = {"number": kept.number, "problems": ["cannot read: Input/output error"]}
                event = {"id": trial.trial_id, "what": "checkpoint_quarantined", "facts": facts}
                run.note("trial_checkpoint", event)
    before = {trial.folder: len(trial.checkpoints.usable()) for trial in trials}
    set_aside = inspect_study(open_store(lab.study)).trials
    assert {len(trial.checkpoints.usable()) for trial in set_aside} == {0}

    one = next(trial.folder for trial in trials if before[trial.folder])
    of_trial = holdfast("verify", "--restore", lab.study / one)
    of_study = holdfast("verify", "--restore", lab.study)

    assert (of_trial.code, of_study.code) == (0, 0)
    assert of_trial.out.count("restored     ") == before[one]
    assert of_study.out.count("restored     ") == sum(before.values()) - before[one]
    after = inspect_study(open_store(lab.study)).trials
    assert {trial.folder: len(trial.checkpoints.usable()) for trial in after} == before

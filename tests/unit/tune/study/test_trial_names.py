"""Names of trials and of their folders."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.names import broken_name_rule
from holdfast.core.study.events import TrialAdded, TrialsArchived
from holdfast.core.study.folder_names import FolderNames
from holdfast.core.study.machine import Study
from holdfast.errors import ConfigError
from holdfast.tune import TuneConfig
from holdfast.tune.search.generator import Proposal
from holdfast.tune.study.trial_names import Namer
from tests.unit.core.study.studies import Judge, study_of

CREATED = 1e9  # long before any driver of these tests
DAY = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(CREATED))


def namer_of(
    study: Study | None = None, trainable: str = "train", **creators: Any
) -> tuple[Namer, Study]:
    study = study_of(Judge(), trials=0) if study is None else study
    spec: Any = SimpleNamespace(
        trainable=SimpleNamespace(name=trainable), tune_config=TuneConfig(**creators)
    )
    return Namer(spec, study, CREATED), study


def proposal_of(number: int, tag: str = "lr=0.1") -> Proposal:
    return Proposal(f"abc12_{number:05d}", number, {"lr": 0.1}, {"lr": 0.1}, f"{number}_{tag}")


def add(namer: Namer, study: Study, proposal: Proposal) -> str:
    """Add a trial to the study and return its folder."""
    name, folder = namer.names_of(proposal)
    data = proposal.to_data()
    study.take(
        TrialAdded(
            trial_id=proposal.trial_id,
            number=proposal.number,
            config=data["config"],
            params={},
            tag="",
            trainable="f",
            folder=folder,
            resources=[],
            name=name,
            is_folder_chosen=namer.is_chosen,
        )
    )
    return folder


def archive_all(study: Study) -> None:
    """Finish and archive all trials of a study, and restore the study from its state."""
    for trial in study.get_trials():
        study.stop_trial(trial)
    study.take(TrialsArchived("k", list(study.finished)))
    study.set_state(study.get_state())
    assert not study.trials and not study.finished


def test_a_trial_that_a_killed_driver_had_no_record_of_gets_its_folder_again() -> None:
    namer, _ = namer_of()

    _, folder = namer.names_of(proposal_of(0))

    assert folder == f"train_abc12_00000_0_lr=0.1_{DAY}"


@pytest.mark.parametrize("limit", ["0", "5", "20", "130", "100000"])
@pytest.mark.parametrize("trainable", ["train", "t" * 125, "t" * 1000, "ü" * 125, "訓練" * 50])
def test_the_id_of_a_trial_is_never_cut(
    limit: str, trainable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_MAX_LEN_IDENTIFIER", limit)
    namer, _ = namer_of(trainable=trainable)

    folders = [namer.usual_folder(proposal_of(number, "x=" + "é" * 300)) for number in range(3)]

    assert len(set(folders)) == 3
    for number, folder in enumerate(folders):
        assert f"abc12_{number:05d}" in folder and broken_name_rule(folder) is None


@pytest.mark.parametrize("limit", ["many", "-1", "1.5"])
def test_an_invalid_limit_is_refused(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_MAX_LEN_IDENTIFIER", limit)

    with pytest.raises(ConfigError, match=f"TUNE_MAX_LEN_IDENTIFIER={limit}"):
        namer_of()


@pytest.mark.parametrize("name", ["same", "n" * 130, "訓" * 120, "a\0b", "a/b", ".."])
def test_names_that_agree_make_folders_that_do_not(name: str) -> None:
    namer, study = namer_of(trial_name_creator=lambda trial: name)

    folders = [add(namer, study, proposal_of(number, "x=1" * 50)) for number in range(3)]
    archive_all(study)
    folders += [add(namer, study, proposal_of(number)) for number in range(3, 6)]

    assert len(set(folders)) == 6
    assert not any(map(broken_name_rule, folders))


def test_a_folder_is_given_out_once_even_if_its_trial_is_archived() -> None:
    names = ["one", "One", "two", "one", "é", "e\u0301", "STRASSE", "straße", "x" * 900, "x" * 901]
    namer, study = namer_of(trial_dirname_creator=lambda trial: names[trial.number % len(names)])

    folders = []
    for number in range(3 * len(names)):
        folders.append(add(namer, study, proposal_of(number)))
        if number % 7 == 6:
            archive_all(study)

    assert folders[:6] == [
        "one",
        "One_abc12_00001",
        "two",
        "one_abc12_00003",
        "é",
        "e\u0301_abc12_00005",
    ]
    assert len({folder.casefold() for folder in folders}) == len(folders)
    assert folders[8] == "x" * 200 and folders[9] == "x" * 188 + "_abc12_00009"
    assert not any(map(broken_name_rule, folders))


def test_no_folder_is_taken_by_a_name_that_looks_like_one_of_ours() -> None:
    names = ["x_abc12_00001", "x", "x", "x_abc12_00001"]
    names[2:2] = ["x_abc12_00001_abc12_00002"]
    namer, study = namer_of(trial_dirname_creator=lambda trial: names[trial.number])

    folders = [add(namer, study, proposal_of(number)) for number in range(len(names))]

    assert len(set(folders)) == len(names)


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a\0", "\ud800", " a", "a\\b"])
def test_an_invalid_folder_name_is_refused(name: str) -> None:
    namer, _ = namer_of(trial_dirname_creator=lambda trial: name)

    with pytest.raises(ConfigError, match="not the name of a folder"):
        namer.names_of(proposal_of(0))


def test_a_name_that_cannot_be_written_is_refused() -> None:
    namer, _ = namer_of(trial_name_creator=lambda trial: "\ud800")

    with pytest.raises(ConfigError, match="not valid Unicode"):
        namer.names_of(proposal_of(0))


def test_a_hundred_thousand_folders_are_remembered_in_a_megabyte() -> None:
    names = FolderNames()
    for number in range(100_000):
        names.add(f"folder-{number}")

    text = names.to_data()
    again = FolderNames(text)

    assert len(text) < 1.1e6 and len(again) == 100_000
    assert all(f"Folder-{number}" in again for number in range(0, 100_000, 999))
    assert "folder-100000" not in again

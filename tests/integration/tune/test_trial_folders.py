"""Every trial has a folder of its own, and one that can have none costs the study nothing else."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from holdfast import tune
from holdfast.control.study import journal as study_journal
from holdfast.tune import Tuner
from holdfast.tune.study.trial_names import Namer
from tests.integration.train.loops import is_first
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import save


def test_trials_share_no_folder_though_their_names_repeat_and_they_are_archived(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_journal, "ARCHIVE_AFTER", 5)
    driver, flag = os.getpid(), lab.folder / "stopped"

    def train(config: dict[str, Any]) -> None:
        if config["x"] == 15 and is_first(flag):
            os.kill(driver, signal.SIGINT)
        tune.report({"x": config["x"]})

    def dirname(trial: Any) -> str:
        return f"folder-{trial.number % 2}"

    creators = tune.TuneConfig(
        trial_dirname_creator=dirname, reuse_actors=True, max_concurrent_trials=2
    )
    lab.fit(train, {"x": tune.grid_search(list(range(30)))}, tune=vars(creators), verbose=0)
    results = Tuner.restore(str(lab.study), train, tune_config=creators).fit()

    folders = [path.parent for path in lab.study.glob("*/result.json")]
    assert len(results) == len(folders) == 30 and results.num_errors == 0
    rows = [folder.joinpath("result.json").read_text().splitlines() for folder in folders]
    assert [len(one) for one in rows] == [1] * 30
    assert {"folder-0", "folder-1"} <= {folder.name for folder in folders}
    assert sorted(last(one)["x"] for one in results) == list(range(30))


@pytest.mark.parametrize("name", ["訓" * 120, "a\0b", "\ud800"])
def test_a_study_outlives_the_odd_name_of_a_trial(name: str, lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        save(1)

    results = lab.fit(
        train,
        {"x": tune.grid_search([0, 1, 2])},
        tune={"trial_name_creator": lambda trial: name if trial.number == 1 else str(trial.number)},
    )

    is_written = name != "\ud800"
    assert [one.error is None for one in results] == [True, is_written, True]


def test_a_trial_whose_folder_cannot_be_ends_alone_when_its_study_goes_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a version left it that let such names into the journal, and then could not go on."""

    def train(config: dict[str, Any]) -> None:
        save(1)

    usual = Namer.names_of
    with monkeypatch.context() as patch:
        patch.setattr(
            Namer,
            "names_of",
            lambda self, proposal: (None, "訓" * 120) if proposal.number else usual(self, proposal),
        )
        with pytest.raises(Exception, match="File name too long"):
            lab.fit(train, {"x": tune.grid_search([0, 1, 2])}, tune={"max_concurrent_trials": 1})

    results = lab.restore(train)
    again = lab.restore(train, restart_errored=True)

    assert len(results) == len(again) == 3
    for grid in (results, again):
        errors = [one.error for one in grid]
        assert [error is None for error in errors] == [True, False, True]
        assert "no folder can be called" in str(errors[1])

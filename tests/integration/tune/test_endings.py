"""What people are told when a study ends, and when it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.core.study.trial import Status
from holdfast.tune import RunConfig, Tuner
from holdfast.tune.outputs.display import in_use
from holdfast.tune.results.summary import StoredTrial
from holdfast.tune.trial import StudyView, Trial
from tests.integration.train.loops import is_first
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import Counter, begin, save


def kept_of(lab: Lab) -> list[Status]:
    """Return how each trial has ended, by the study's folder and by the trial's own."""
    trials = tune.ExperimentAnalysis(lab.study).trials
    for trial in trials:
        assert isinstance(trial, StoredTrial)
        assert trial.local_path == trial.logdir == str(lab.study / trial.folder)
        assert repr(trial) == f"Trial(train_{trial.trial_id}, {trial.status})"
        error = tune.Result.from_path(lab.study / trial.folder).error
        assert (error is None) is (trial.status is Status.TERMINATED)
    return [trial.status for trial in trials]


@pytest.mark.req("U-120")
def test_the_call_that_is_printed_goes_on_with_what_failed_and_tells_of_each_trial_once(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            if config["x"] == 1 and step == 2 and is_first(notes.with_name("failure")):
                raise RuntimeError("the first time only")
            save(step, {"loss": config["x"] / step})

    space = {"x": tune.grid_search([1, 2])}
    lab.fit(train, space, tune={"metric": "loss", "mode": "min"})
    told = capsys.readouterr().err
    assert "rank 0 raised RuntimeError: the first time only" in told.partition("Failed:")[2]
    call = told.rstrip().splitlines()[-1].strip()
    assert kept_of(lab) == [Status.ERROR, Status.TERMINATED]

    results = eval(call, {"Tuner": Tuner, "train": train})  # as a user would

    assert [last(one)["step"] for one in results] == [3, 3]
    told = capsys.readouterr().err
    table = told[told.index("\ntrial ") :]
    for result in results:
        assert table.partition("\nTrials: 2 of 2 done")[0].count(last(result)["trial_id"]) == 1
    assert "ERROR" not in table
    assert "Failed" not in table
    assert "Tuner.restore" not in table
    assert kept_of(lab) == [Status.TERMINATED, Status.TERMINATED]


def test_more_samples_of_a_grid_are_counted_as_the_trials_that_they_are(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.fit(Counter, {"add": tune.grid_search([1, 2])}, stop={"training_iteration": 1})
    assert "Trials: 2 of 2 done" in capsys.readouterr().err

    tuner = Tuner.restore(lab.study, Counter)
    assert len(tuner.extend(num_samples=1).fit()) == 4

    assert "Trials: 4 of 4 done (4 TERMINATED)" in capsys.readouterr().err


def test_a_study_that_goes_on_tells_as_much_as_before_unless_told_otherwise(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.fit(lambda config: {"x": 1}, verbose=0)
    lab.restore(lambda config: {"x": 1})
    assert capsys.readouterr().err == ""

    lab.restore(lambda config: {"x": 1}, run_config=RunConfig(verbose=1))
    assert "Trials: 1 of 1 done" in capsys.readouterr().err


def test_memory_is_told_as_people_say_it_and_only_if_some_is_reserved() -> None:
    there = {"CPU": 2.0, "memory": 8.0 * 2**30}

    assert in_use(there, {"CPU": 0.5, "memory": 8.0 * 2**30}) == "1.5/2 CPU"
    assert in_use(there, {"CPU": 2.0, "memory": 6.0 * 2**30}) == "0/2 CPU, 2.0/8.0 GiB memory"


class PausesOnce(tune.schedulers.FIFOScheduler):
    """Pauses every trial after its second step."""

    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        return self.PAUSE if result["training_iteration"] == 2 else self.CONTINUE


@pytest.mark.req("U-049")
def test_a_function_that_is_paused_and_has_not_saved_is_told_of_once(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    notes = lab.notes

    def train(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            if config["saves"]:
                save(step)
            else:
                tune.report({"step": step})

    def fit(name: str, *saves: bool) -> str:
        caplog.clear()
        space = {"saves": tune.grid_search(list(saves))}
        results = lab.fit(train, space, name=name, tune={"scheduler": PausesOnce()})
        assert [last(one)["step"] for one in results] == [3] * len(saves)
        return caplog.text

    assert "paused" not in fit("saves", True)
    told = fit("does not", False, False)
    assert told.count("PausesOnce has paused train_") == 1
    assert "after step 2, and it has saved nothing" in told


class Noting(tune.Trainable):
    """Writes a file of its own with every step."""

    def step(self) -> dict[str, Any]:
        Path(self.logdir, f"mine-{self.iteration}").touch()
        return {"loss": 1.0}


def test_what_a_class_writes_to_its_logdir_is_kept_in_the_folder_of_its_trial(lab: Lab) -> None:
    lab.fit(Noting, stop={"training_iteration": 2})

    assert sorted(one.name for one in lab.study.glob("Noting_*/mine-*")) == ["mine-0", "mine-1"]


def test_the_result_that_a_trial_is_stopped_with_says_that_it_is_done(lab: Lab) -> None:
    [result] = lab.fit(Noting, stop={"training_iteration": 2})

    assert [row["done"] for row in lab.rows("00000")] == [False, True]
    assert last(result)["done"] is True


def test_a_function_that_returns_is_done_with_what_it_reported_last(lab: Lab) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(2):
            tune.report({"step": step})

    [result] = lab.fit(train)

    assert last(result)["done"] is True
    assert [row["step"] for row in lab.rows("00000")] == [0, 1]


def test_of_trials_whose_loss_is_nan_one_is_told_and_the_others_are_counted(
    lab: Lab, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(1, 4):
            tune.report({"loss": float("nan") if config["x"] and step >= 2 else 0.5})

    results = lab.fit(train, {"x": tune.grid_search([0, 1, 2])}, tune={"max_concurrent_trials": 1})

    assert results.num_errors == 0
    first = results.trials[1]
    [told] = [line for line in caplog.messages if "nan" in line]
    assert told == (
        f"{first} reported loss=nan at step 2; the study goes on, and further trials are"
        " only counted"
    )
    end = capsys.readouterr().err
    assert f"2 trials have reported values that are not finite, first loss=nan of {first}" in end

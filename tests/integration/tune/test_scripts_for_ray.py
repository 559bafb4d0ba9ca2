"""What scripts written for Ray rely on, one behaviour each."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.tune import TuneConfig, Tuner
from holdfast.tune.schedulers import (
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)
from tests.integration.tune.conftest import Lab, last


class FailsOrEnds(tune.Trainable):
    def step(self) -> dict[str, Any]:
        if self.config["fails"]:
            raise RuntimeError("not today")
        return {"done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {}

    def load_checkpoint(self, checkpoint: Any) -> None:
        pass


# ---------------------------------------------------------------------- a number as the result


def number(config: dict[str, Any]) -> float:
    return float(config["x"])


def numbers(config: dict[str, Any]) -> Iterator[float]:
    for _ in range(3):
        yield float(config["x"])


@pytest.mark.parametrize("trainable", [number, numbers])
@pytest.mark.parametrize(
    "scheduler",
    [
        FIFOScheduler,
        AsyncHyperBandScheduler,
        HyperBandScheduler,
        MedianStoppingRule,
        lambda: PopulationBasedTraining(hyperparam_mutations={"y": [1]}),
    ],
    ids=["fifo", "asha", "hyperband", "median", "pbt"],
)
def test_trials_that_return_a_number_are_compared_by_it(
    tmp_path: Path, scheduler: Callable[[], Any], trainable: Any
) -> None:
    analysis = tune.run(
        trainable,
        config={"x": tune.grid_search([1, 3, 2])},
        mode="max",
        scheduler=scheduler(),
        storage_path=tmp_path,
        name="study",
        verbose=0,
    )

    assert analysis.best_config["x"] == 3
    assert analysis.result_grid.get_best_result().config == analysis.best_config
    assert tune.ExperimentAnalysis(tmp_path / "study").get_best_config(mode="min")["x"] == 1


def test_a_mode_alone_says_nothing_of_trials_that_return_metrics(lab: Lab) -> None:
    results = lab.fit(
        lambda config: {"loss": config["x"]},
        {"x": tune.grid_search([1, 2])},
        tune={"mode": "min"},
    )

    with pytest.raises(ValueError, match="metric is not known"):
        results.get_best_result()


# ---------------------------------------------------------------------- looking at a study


def test_a_result_grid_is_made_from_an_analysis(tmp_path: Path) -> None:
    driven = tune.run(
        lambda config: {"loss": config["x"]},
        config={"x": tune.grid_search([2, 1])},
        metric="loss",
        mode="min",
        storage_path=tmp_path,
        name="study",
        verbose=0,
    )
    opened = tune.ExperimentAnalysis(tmp_path / "study", default_metric="loss", default_mode="min")

    for analysis in (driven, opened):
        grid = tune.ResultGrid(analysis)

        assert [last(one)["loss"] for one in grid] == [2, 1]
        assert grid.experiment_path == str(tmp_path / "study")
        assert last(grid.get_best_result())["loss"] == 1
        assert (grid.errors, grid.num_terminated, grid.interrupted) == ([], 2, False)


def test_a_result_grid_is_not_made_from_a_path(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"tune\.ExperimentAnalysis\(path\) opens"):
        tune.ResultGrid(str(tmp_path))  # type: ignore[arg-type]


def test_trials_of_an_analysis_have_what_trials_in_callbacks_have(tmp_path: Path) -> None:
    seen: dict[str, dict[str, Any]] = {}

    def facts(trial: Any) -> dict[str, Any]:
        return {
            "has_checkpoint": trial.has_checkpoint(),
            "error_file": trial.error_file,
            "trainable_name": trial.trainable_name,
            "num_failures": trial.num_failures,
            "start_time": trial.start_time,
        }

    class Watch(tune.Callback):
        def on_experiment_end(self, trials: Any, **info: Any) -> None:
            del info
            seen.update({trial.trial_id: facts(trial) for trial in trials})

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            del iteration, trials, info
            seen[trial.trial_id] = facts(trial)

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            del iteration, trials, info
            seen[trial.trial_id] = facts(trial)

    analysis = tune.run(
        FailsOrEnds,
        config={"fails": tune.grid_search([True, False])},
        callbacks=[Watch()],
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
        raise_on_failed_trial=False,
        storage_path=tmp_path,
        name="study",
        verbose=0,
    )
    opened = tune.ExperimentAnalysis(tmp_path / "study")

    for trials in (analysis.trials, opened.trials):
        assert {trial.trial_id: facts(trial) for trial in trials} == seen
    failed, ended = analysis.trials
    assert "not today" in Path(failed.error_file).read_text()
    assert (failed.has_checkpoint(), failed.num_failures) == (False, 1)
    assert (ended.has_checkpoint(), ended.error_file) == (True, None)
    assert ended.trainable_name == "FailsOrEnds"


def test_trials_known_from_their_folders_alone_have_it_too(tmp_path: Path) -> None:
    tune.run(
        FailsOrEnds,
        config={"fails": tune.grid_search([True, False])},
        raise_on_failed_trial=False,
        storage_path=tmp_path,
        name="study",
        verbose=0,
    )
    shutil.rmtree(tmp_path / "study" / ".holdfast")
    trials = tune.ExperimentAnalysis(tmp_path / "study").trials

    assert {trial.trainable_name for trial in trials} <= {"FailsOrEnds", ""}
    [ended] = [trial for trial in trials if trial.error_file is None]
    assert (ended.trainable_name, ended.num_failures) == ("FailsOrEnds", 0)
    [failed] = [trial for trial in trials if trial is not ended]
    assert failed.num_failures == 1
    assert Path(failed.error_file or "").is_file()


# ---------------------------------------------------------------------- errors by the class known


def train(config: dict[str, Any]) -> dict[str, Any]:
    return {"loss": config.get("x", 0)}


@pytest.mark.parametrize(
    ("kind", "words", "call"),
    [
        (tune.TuneError, "no `run`", lambda: tune.run_experiments({"a": {}})),
        (tune.TuneError, "is 3: there is no", lambda: tune.run_experiments({"a": 3})),
        (
            tune.TuneError,
            "'stop', if that was meant",
            lambda: tune.run_experiments({"a": {"run": train, "stopp": {}}}),
        ),
        (
            tune.TuneError,
            "has 'bah', which is nothing",
            lambda: tune.run_experiments({"a": {"run": train, "bah": 1}}),
        ),
        (
            tune.TuneError,
            "grid_search='asdf' is not a list",
            lambda: tune.run_experiments(
                {"a": {"run": train, "config": {"x": {"grid_search": "asdf"}}}}
            ),
        ),
        (tune.TuneError, "not a list", lambda: tune.grid_search("asdf")),
        (
            tune.TuneError,
            "two arguments",
            lambda: tune.run(train, stop=lambda result: True, verbose=0),
        ),
        (tune.TuneError, "this is int", lambda: tune.run(train, stop=3, verbose=0)),
        (TypeError, "a trainable is a function", lambda: tune.register_trainable("x", 3)),
        (TypeError, "is made by a function", lambda: tune.register_env("x", 3)),
        (TypeError, "neither a function", lambda: Tuner(3)),
        (TypeError, "is no Trainable", lambda: Tuner(dict)),
        (TypeError, "dict is no Trainable", lambda: tune.with_parameters(dict, a=1)),
        (TypeError, "3 is neither a function", lambda: tune.with_resources(3, {"cpu": 1})),
        (ValueError, "no trainable is registered", lambda: Tuner("no such name")),
        (tune.TuneError, "no trainable is registered", lambda: Tuner("no such name")),
        (
            ValueError,
            "needs other arguments",
            lambda: tune.sample_from(lambda spec, more: 1).sample(None),
        ),
        (FileNotFoundError, "not the folder", lambda: Tuner.restore("/no/such/folder", train)),
        (ValueError, "not the folder", lambda: Tuner.restore("/no/such/folder", train)),
        (AttributeError, "called on the class", lambda: Tuner(train).restore("/", train)),
    ],
)
def test_a_mistake_is_caught_by_the_class_that_ray_has_for_it(
    kind: type[Exception], words: str, call: Callable[[], object]
) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_a_restore_with_another_trainable_is_a_value_error(lab: Lab) -> None:
    lab.fit(train)
    tune.register_trainable("another_one", number)

    for other in ("not_registered", "another_one", number):
        with pytest.raises(ValueError, match="register|the trainable given is"):
            Tuner.restore(str(lab.study), other)
    assert Tuner.can_restore(lab.study)
    assert not Tuner.can_restore(lab.storage)


def test_errors_with_two_bases_cross_processes() -> None:
    with pytest.raises(FileNotFoundError) as missing:
        Tuner.restore("/no/such/folder", train)
    with pytest.raises(TypeError) as wrong:
        tune.register_env("x", 3)

    for error in (missing.value, wrong.value):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)


def test_an_empty_space_is_not_that_of_a_study_that_has_one(lab: Lab) -> None:
    lab.fit(train, {"x": 1})

    with pytest.raises(ValueError, match=r"missing: \['x'\]"):
        Tuner.restore(str(lab.study), train, param_space={})
    assert Tuner.restore(str(lab.study), train, param_space=None).fit().num_terminated == 1


def test_an_empty_space_is_that_of_a_study_without_one(lab: Lab) -> None:
    lab.fit(train)

    assert Tuner.restore(str(lab.study), train, param_space={}).fit().num_terminated == 1

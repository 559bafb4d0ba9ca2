"""What scripts written for Ray rely on, one behaviour each."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast import tune
from holdfast.tune import Tuner
from holdfast.tune.schedulers import (
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import Counter


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
    lowest = tune.ExperimentAnalysis(tmp_path / "study").get_best_config(mode="min")
    assert lowest is not None and lowest["x"] == 1


def test_a_number_of_numpy_is_a_number_too(lab: Lab) -> None:
    def returns(config: dict[str, Any]) -> Any:
        return np.float32(0.5) if config["x"] else np.int64(2)

    results = lab.fit(returns, {"x": tune.grid_search([0, 1])}, tune={"mode": "max"})

    assert [last(one)["_metric"] for one in results] == [2, 0.5]
    assert results.get_best_result().config == {"x": 0}


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


NOTHING: Any = 3  # neither a function nor a class


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
            "has 'bah', which is not an argument",
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
        (TypeError, "is made by a function", lambda: tune.register_env("x", NOTHING)),
        (TypeError, "neither a function", lambda: Tuner(3)),
        (TypeError, "is not a subclass of Trainable", lambda: Tuner(dict)),
        (TypeError, "dict is not a subclass of Trainable", lambda: tune.with_parameters(dict, a=1)),
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
        with pytest.raises(ValueError, match=r"register|the trainable given is"):
            Tuner.restore(str(lab.study), other)
    assert Tuner.can_restore(lab.study)
    assert not Tuner.can_restore(lab.storage)


def test_errors_with_two_bases_cross_processes() -> None:
    with pytest.raises(FileNotFoundError) as missing:
        Tuner.restore("/no/such/folder", train)
    with pytest.raises(TypeError) as wrong:
        tune.register_env("x", NOTHING)

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


# ---------------------------------------------------------------------- what trials are given


@pytest.mark.parametrize("reuses", [False, True])
def test_trials_find_the_drivers_working_directory(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reuses: bool
) -> None:
    def where(config: dict[str, Any]) -> dict[str, Any]:
        return {"told": os.environ["TUNE_ORIG_WORKING_DIR"], "is": os.getcwd()}

    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    results = lab.fit(where, {"x": tune.grid_search([1, 2])}, tune={"reuse_actors": reuses})

    assert results.errors == []
    assert [(last(one)["told"], last(one)["is"]) for one in results] == [(str(here),) * 2] * 2
    assert "TUNE_ORIG_WORKING_DIR" not in os.environ


def test_a_variable_of_the_users_own_is_left_as_it_is(lab: Lab) -> None:
    def where(config: dict[str, Any]) -> dict[str, Any]:
        return {"told": os.environ["TUNE_ORIG_WORKING_DIR"]}

    env = {"env_vars": {"TUNE_ORIG_WORKING_DIR": "/elsewhere"}}

    assert last(lab.fit(where, worker_runtime_env=env)[0])["told"] == "/elsewhere"


# ---------------------------------------------------------------------- classes that are loaded


class LoadsAtLast(Counter):
    """Fails once it has counted to 2, and fails to load itself as often as its config says."""

    def setup(self, config: dict[str, Any]) -> None:
        super().setup(config)
        self.notes = Path(config["notes"])
        self.is_loaded = False

    def step(self) -> dict[str, Any]:
        if self.count == 2 and not self.is_loaded:
            raise RuntimeError("once")
        return super().step()

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        assert self.count == 0, "an object that has failed to load is not used again"
        self.count = 1000
        with self.notes.open("a") as file:
            file.write("load\n")
        if len(self.notes.read_text().splitlines()) <= self.config["fails"]:
            raise RuntimeError("cannot load yet")
        super().load_checkpoint(checkpoint)
        self.is_loaded = True


def load_study(lab: Lab, fails: int) -> tune.Result:
    return lab.fit(
        LoadsAtLast,
        {"notes": str(lab.notes), "fails": fails},
        max_failures=1,
        stop={"training_iteration": 5},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
    )[0]


def test_loads_that_fail_are_tried_again_and_not_charged(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_RESTORE_RETRY_NUM", "2")
    result = load_study(lab, fails=2)

    assert result.error is None
    assert last(result)["count"] == 5
    assert lab.notes.read_text() == "load\n" * 3


def test_one_load_too_many_is_a_failure_of_the_trial(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_RESTORE_RETRY_NUM", "2")
    result = load_study(lab, fails=3)

    assert "cannot load yet" in str(result.error)
    assert lab.notes.read_text() == "load\n" * 3


def test_a_load_that_fails_is_not_tried_again_by_itself(lab: Lab) -> None:
    assert "cannot load yet" in str(load_study(lab, fails=1).error)
    assert lab.notes.read_text() == "load\n"


def test_how_often_loads_are_tried_again_is_a_number(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_RESTORE_RETRY_NUM", "twice")

    with pytest.raises(ValueError, match="TUNE_RESTORE_RETRY_NUM=twice"):
        load_study(lab, fails=0)


class OnlySaves(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        if self.count == self.config.get("fails_at"):
            raise RuntimeError("once")
        return {"count": self.count, "done": self.count == 3}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "model").write_text(str(self.count))


def test_a_class_that_only_saves_is_saved_and_warns_once(lab: Lab) -> None:
    options = tune.CheckpointConfig(checkpoint_at_end=True, checkpoint_frequency=2)

    with pytest.warns(UserWarning, match="no load_checkpoint: trials are saved") as warned:
        results = lab.fit(OnlySaves, checkpoint_config=options)

    assert len(warned) == 1
    assert results.errors == []
    kept = [Path(one.path, "model").read_text() for one, _ in results[0].best_checkpoints]
    assert kept == ["2", "3"]


def test_a_class_that_only_saves_is_not_saved_unasked(lab: Lab) -> None:
    results = lab.fit(OnlySaves)

    assert (results.errors, results[0].checkpoint) == ([], None)


def test_a_class_that_only_saves_fails_when_it_must_go_on(lab: Lab) -> None:
    options = tune.CheckpointConfig(checkpoint_frequency=1)

    with pytest.warns(UserWarning, match="no load_checkpoint"):
        results = lab.fit(OnlySaves, {"fails_at": 2}, max_failures=1, checkpoint_config=options)

    assert "OnlySaves has no method load_checkpoint(), and cannot resume" in str(results[0].error)


def test_a_class_that_only_saves_goes_with_no_scheduler_that_pauses(lab: Lab) -> None:
    scheduler = HyperBandScheduler(metric="count", mode="max", max_t=9)

    with pytest.raises(ValueError, match="cannot be saved and resumed"):
        lab.fit(OnlySaves, tune={"scheduler": scheduler})


def test_a_class_that_cannot_save_is_refused_where_it_is_to_be_saved(lab: Lab) -> None:
    class Neither(tune.Trainable):
        def step(self) -> dict[str, Any]:
            return {"done": True}

    with pytest.raises(ValueError, match="Neither cannot be saved: it has no save_checkpoint"):
        lab.fit(Neither, checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True))


# ---------------------------------------------------------------------- what is in a result


def test_a_trial_that_reports_nothing_still_says_that_it_is_done(tmp_path: Path) -> None:
    driven = tune.run(
        lambda config: None, config={"x": 7}, storage_path=tmp_path, name="study", verbose=0
    )
    opened = tune.ExperimentAnalysis(tmp_path / "study")

    for [trial] in (driven.trials, opened.trials):
        result = trial.last_result
        assert (result["done"], result["trial_id"]) == (True, trial.trial_id)
        assert result["config"] == {"x": 7}
        assert (trial.status, trial.statistics) == ("TERMINATED", {})


def test_a_trial_that_fails_before_its_first_report_has_no_result(lab: Lab) -> None:
    def fail(config: dict[str, Any]) -> None:
        raise RuntimeError("not today")

    results = lab.fit(fail)

    assert (results.num_errors, results[0].metrics) == (1, None)


def test_a_searcher_is_told_nothing_of_a_trial_that_reported_nothing(lab: Lab) -> None:
    told: list[Any] = []

    class Listens(tune.search.Searcher):
        def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
            return {"x": 1} if len(told) < 1 else self.FINISHED

        def on_trial_complete(
            self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
        ) -> None:
            told.append(result)

        def set_search_properties(self, *given: Any, **spec: Any) -> bool:
            return True

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: Any) -> None:
            pass

        def __deepcopy__(self, memo: Any) -> Any:
            return self

    lab.fit(lambda config: None, tune={"search_alg": Listens(), "max_concurrent_trials": 1})

    assert told == [None]


def test_a_result_says_with_which_config_it_was_made(tmp_path: Path) -> None:
    driven = tune.run(
        train, config={"x": tune.grid_search([3, 4])}, storage_path=tmp_path, name="s", verbose=0
    )
    shutil.copytree(tmp_path / "s", tmp_path / "copy", ignore=shutil.ignore_patterns(".holdfast"))

    for analysis in (driven, *map(tune.ExperimentAnalysis, (tmp_path / "s", tmp_path / "copy"))):
        assert [one["config"] for one in analysis.results.values()] == [{"x": 3}, {"x": 4}]
        assert list(analysis.results_df["config/x"]) == [3, 4]
        assert list(analysis.dataframe()["config/x"]) == [3, 4]
    assert driven.trials[0].last_result["experiment_tag"] == "0_x=3"


def test_an_experiment_is_refused_when_it_is_made_if_a_function_is_to_be_saved() -> None:
    for options in ({"checkpoint_at_end": True}, {"checkpoint_frequency": 1}):
        with pytest.raises(ValueError, match="the function `train` saves its checkpoints itself"):
            tune.Experiment("e", train, checkpoint_config=tune.CheckpointConfig(**options))


# ---------------------------------------------------------------------- several experiments


def test_several_experiments_are_one_analysis(tmp_path: Path) -> None:
    experiments = [
        tune.Experiment(name, train, config={"x": tune.grid_search(xs)}, storage_path=tmp_path)
        for name, xs in (("one", [1, 5]), ("two", [3]), (None, [2]))
    ]
    analysis = tune.run(experiments, metric="loss", mode="max", verbose=0)

    assert [trial.config["x"] for trial in analysis.trials] == [1, 5, 3, 2]
    assert analysis.best_config == {"x": 5}
    assert analysis.experiment_path == str(tmp_path)
    assert {len(frame) for frame in analysis.trial_dataframes.values()} == {1}
    assert Path(analysis.best_logdir, "result.json").is_file()
    assert [last(one)["loss"] for one in tune.ResultGrid(analysis)] == [1, 5, 3, 2]
    assert all(Path(one.path or "", "params.json").is_file() for one in tune.ResultGrid(analysis))
    assert {"one", "two"} < {path.name for path in tmp_path.iterdir()}


def test_several_experiments_can_be_had_as_trials(tmp_path: Path) -> None:
    experiments = [tune.Experiment(name, train, storage_path=tmp_path) for name in ("a", "b")]
    with pytest.deprecated_call():
        trials = tune.run(experiments, return_trials=True, verbose=0)

    assert [Path(trial.path).parent.name for trial in trials] == ["a", "b"]


def test_a_failure_in_one_experiment_is_told_once_all_have_run(tmp_path: Path) -> None:
    experiments = [
        tune.Experiment(name, FailsOrEnds, config={"fails": name == "a"}, storage_path=tmp_path)
        for name in ("a", "b")
    ]

    with pytest.raises(tune.TuneError, match="1 of 2 trials did not complete"):
        tune.run(experiments, verbose=0)
    assert tune.ExperimentAnalysis(tmp_path / "b").trials[0].status == "TERMINATED"


def test_experiments_that_would_be_in_each_others_way_are_refused(tmp_path: Path) -> None:
    def experiment(name: str, place: Path) -> tune.Experiment:
        return tune.Experiment(name, train, storage_path=place)

    for experiments, words in (
        ([], "there is nothing to run"),
        ([experiment("a", tmp_path), train], "is not an Experiment"),
        ([experiment("a", tmp_path)] * 2, "2 of the experiments are called 'a'"),
        ([experiment("a", tmp_path), experiment("b", tmp_path / "far")], "stored in 2 places"),
    ):
        with pytest.raises(tune.TuneError, match=words):
            tune.run(experiments, verbose=0)
    assert list(tmp_path.iterdir()) == []

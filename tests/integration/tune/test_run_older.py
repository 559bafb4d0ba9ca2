"""Arguments, functions and names of all eras of `tune.run`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.errors import ConfigError
from holdfast.tune import track
from holdfast.tune.experiment import Experiment, Trial
from holdfast.tune.logger import CSVLogger, JsonLogger
from tests.integration.tune.classes import Counter
from tests.integration.tune.old_lab import OldLab, old_lab

__all__ = ["old_lab"]


class Once(tune.Trainable):
    """Is done after one step."""

    def _train(self) -> dict[str, Any]:
        return {"loss": 1.0, "done": True}

    def _save(self, checkpoint_dir: str) -> dict[str, Any]:
        return {}

    def _restore(self, saved: dict[str, Any]) -> None:
        pass


# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"checkpoint_freq": 1}, "checkpoint_freq: write checkpoint_config="),
        ({"checkpoint_at_end": True}, "checkpoint_at_end: write checkpoint_config="),
        ({"keep_checkpoints_num": 2}, "keep_checkpoints_num: write checkpoint_config="),
        ({"checkpoint_score_attr": "min-loss"}, "checkpoint_score_attr: write checkpoint_config="),
        ({"loggers": [JsonLogger]}, "loggers: write callbacks="),
        ({"return_trials": True}, "return_trials: write the trials of what is returned"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_older_argument_works_and_says_what_to_write(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.warns(DeprecationWarning, match="deprecated arguments") as warned:
        tune.run(Once, storage_path=str(tmp_path), **given)

    [warning] = warned
    assert said in str(warning.message)
    assert warning.filename == __file__


def test_arguments_that_nothing_needs_are_ignored_with_one_warning(tmp_path: Path) -> None:
    ignored: dict[str, Any] = {
        "sync_to_cloud": "aws s3 sync {source} {target}",
        "sync_to_driver": False,
        "sync_function": print,
        "global_checkpoint_period": 1,
        "with_server": True,
        "server_port": 1,
        "queue_trials": True,
        "trial_executor": object(),
        "ray_auto_init": False,
        "chdir_to_trial_dir": True,
    }
    with pytest.warns(DeprecationWarning, match="deprecated arguments") as warned:
        analysis = tune.run(Once, storage_path=str(tmp_path), **ignored)

    assert len(analysis.trials) == 1
    [warning] = warned
    assert all(f"{name}: is ignored" in str(warning.message) for name in ignored)


def test_an_unknown_argument_is_a_type_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'checkpoint_frequency'"):
        tune.run(Once, storage_path=str(tmp_path), checkpoint_frequency=1)  # type: ignore[call-arg]

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_samples": 0}, "num_samples=0"),
        ({"max_failures": -2}, "max_failures=-2"),
        ({"mode": "best", "metric": "loss"}, "mode='best'"),
        ({"export_formats": [7]}, "export_formats=7"),
        ({"resources_per_trial": {"cpu": -1}}, "cpu=-1"),
        ({"checkpoint_config": {"num_to_keep": 1}}, "is not a CheckpointConfig"),
        ({"stop": 7}, "stop=7"),
        ({"scheduler": "magic"}, "there is no scheduler 'magic'"),
        ({"config": 5}, "param_space=5 is not a dictionary"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_study_that_cannot_work_is_told_before_an_old_one_is_moved(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    (tmp_path / "Once").mkdir()
    (tmp_path / "Once" / "file").touch()

    with pytest.raises(ConfigError, match=said):
        tune.run(Once, storage_path=str(tmp_path), **given)

    assert [path.name for path in tmp_path.iterdir()] == ["Once"]


def test_what_is_said_twice_must_be_the_same(old_lab: OldLab) -> None:
    config = tune.CheckpointConfig(checkpoint_frequency=3)
    old_lab.run(checkpoint_config=config, checkpoint_freq=3)

    assert old_lab.counts("save") == [3, 6]
    with pytest.raises(ConfigError, match="checkpoint_freq=2, and checkpoint_config says"):
        old_lab.run(checkpoint_config=config, checkpoint_freq=2)


def test_arguments_may_be_given_by_place_as_in_the_first_era(tmp_path: Path) -> None:
    with pytest.deprecated_call():
        analysis = tune.run(
            Counter,
            "by_place",
            {"training_iteration": 1},
            {"notes": str(tmp_path / "notes")},
            {"cpu": 1},
            2,
            str(tmp_path),
        )

    assert len(analysis.trials) == 2
    assert analysis.experiment_path == str(tmp_path / "by_place")


def test_local_dir_wins_and_the_name_is_that_of_the_trainable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TUNE_DISABLE_DATED_SUBDIR", "1")
    tune.run(Once)
    with pytest.deprecated_call():
        tune.run(Once, storage_path=str(tmp_path / "b"), local_dir=str(tmp_path / "a"))
    tune.register_trainable("my_trainable", Once)
    tune.run("my_trainable", storage_path="~/c")

    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*")) == [
        "a/Once",
        "c/my_trainable",
        "ray_results/Once",
    ]


def test_loggers_that_are_named_are_all_there_are(old_lab: OldLab) -> None:
    def files(loggers: Any) -> set[str]:
        [trial] = old_lab.run(Once, loggers=loggers).trials
        names = {path.name for path in (old_lab.study / trial.folder).iterdir()}
        return names & {"result.json", "progress.csv"}

    assert files(None) == {"result.json", "progress.csv"}
    assert files([JsonLogger]) == {"result.json"}
    assert files([CSVLogger]) == {"progress.csv"}
    assert files([]) == set()


def test_trials_are_returned_instead_of_an_analysis(old_lab: OldLab) -> None:
    trials = old_lab.run(Once, num_samples=2, return_trials=True)

    assert isinstance(trials, list)
    assert [trial.last_result["loss"] for trial in trials] == [1.0, 1.0]


def test_the_best_trial_is_found_by_the_metric_of_the_call(old_lab: OldLab) -> None:
    config = {"x": tune.grid_search([2, 3, 1])}
    analysis = old_lab.run(config=config, metric="score", mode="max")

    assert isinstance(analysis, tune.ExperimentAnalysis)
    assert analysis.best_config["x"] == 3
    assert analysis.best_result["score"] == 18
    worst = analysis.get_best_config("score", "min")
    assert worst is not None and worst["x"] == 1
    assert sorted(analysis.dataframe()["config/x"]) == [1, 2, 3]


def test_a_trial_reserves_what_the_call_says(old_lab: OldLab) -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        resources = tune.get_context().get_trial_resources()
        return {"cpus": resources.required_resources["CPU"]}

    [trial] = old_lab.run(train, resources_per_trial={"cpu": 2}).trials

    assert trial.last_result["cpus"] == 2


# ---------------------------------------------------------------------- functions


def test_a_function_reports_through_its_reporter(old_lab: OldLab) -> None:
    def train(config: dict[str, Any], reporter: Any) -> None:
        assert reporter.logdir
        for step in range(1, 9):
            reporter(mean_accuracy=step * config["x"], timesteps_this_iter=10)

    [trial] = old_lab.run(train, {"x": 2}, stop={"mean_accuracy": 6}).trials

    assert trial.last_result["mean_accuracy"] == 6
    assert trial.last_result["timesteps_total"] == 30
    assert trial.last_result["training_iteration"] == 3


def test_a_registered_function_with_a_reporter_and_parameters(old_lab: OldLab) -> None:
    def train(config: dict[str, Any], reporter: Any, data: list[int]) -> None:
        reporter(total=sum(data), done=True)

    tune.register_trainable("with_reporter", tune.with_parameters(train, data=[1, 2]))

    [trial] = old_lab.run("with_reporter").trials

    assert trial.last_result["total"] == 3


def test_a_function_reports_through_track(old_lab: OldLab) -> None:
    def train(config: dict[str, Any]) -> None:
        track.init()
        assert track.trial_dir()
        for step in range(3):
            track.log(step=step)
        track.shutdown()

    [trial] = old_lab.run(train).trials

    assert trial.last_result["step"] == 2


def double(x: int) -> int:
    return 2 * x


def test_a_function_in_a_config_is_passed_on_and_not_called(old_lab: OldLab) -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        return {"doubled": config["f"](4)}

    with pytest.deprecated_call(match=r"tune\.function\(f\): write f"):
        config = {"f": tune.function(double)}
    [trial] = old_lab.run(train, config).trials

    assert trial.last_result["doubled"] == 8


# ---------------------------------------------------------------------- experiments


def test_experiments_are_run_as_dictionaries_and_as_objects(old_lab: OldLab) -> None:
    storage = str(old_lab.storage)
    by_name = tune.run_experiments(
        {
            "first": {"run": Once, "storage_path": storage, "num_samples": 2},
            "second": {"run": Once, "storage_path": storage, "env": "CartPole-v0"},
        }
    )
    as_objects = tune.run_experiments([Experiment("third", Once, storage_path=storage)])
    alone = tune.run(Experiment("fourth", Once, storage_path=storage))

    assert [trial.config for trial in by_name] == [{}, {}, {"env": "CartPole-v0"}]
    assert len(as_objects) == len(alone.trials) == 1
    found = sorted(path.name for path in old_lab.storage.iterdir())
    assert found == ["first", "fourth", "second", "third"]


def test_a_failure_is_told_when_all_experiments_have_run(old_lab: OldLab) -> None:
    failing = {"run": Counter, "config": {"notes": str(old_lab.notes), "fails_at": 1}}
    storage = {"storage_path": str(old_lab.storage)}
    experiments = {"failing": failing | storage, "good": {"run": Once} | storage}

    with pytest.raises(tune.TuneError, match="1 of 2 trials did not complete"):
        tune.run_experiments(experiments)
    again = tune.run_experiments(experiments, resume=True, raise_on_failed_trial=False)

    assert [trial.status for trial in again] == ["ERROR", "TERMINATED"]


@pytest.mark.parametrize("given", [7, [Once], {"x": Once}, {"x": {"stop": {}}}])
def test_what_is_no_experiment_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="experiment"):
        tune.run_experiments(given)


def test_an_experiment_says_what_it_is(tmp_path: Path) -> None:
    experiment = Experiment(
        "mine", Once, stop={"loss": 1}, num_samples=3, storage_path=str(tmp_path)
    )

    assert experiment.run_identifier == "Once"
    assert experiment.path == experiment.local_path == str(tmp_path / "mine")
    assert experiment.remote_path is None
    assert experiment.public_spec == {
        "stop": {"loss": 1}, "num_samples": 3, "time_budget_s": None
    }  # fmt: skip
    assert experiment.stopper("a trial", {"loss": 2})
    assert experiment.checkpoint_config.checkpoint_at_end is False
    assert Trial.TERMINATED == "TERMINATED"


def test_of_an_experiment_and_a_call_the_experiment_counts(tmp_path: Path) -> None:
    experiment = Experiment("mine", Once, storage_path=str(tmp_path))

    with pytest.warns(UserWarning, match="ignored: num_samples"):
        analysis = tune.run(experiment, num_samples=2)

    assert len(analysis.trials) == 1


def test_a_modern_call_warns_of_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        analysis = tune.run(
            Once,
            name="modern",
            metric="loss",
            mode="min",
            storage_path=str(tmp_path),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True, num_to_keep=1),
            max_concurrent_trials=1,
            verbose=0,
        )

    assert analysis.best_checkpoint is not None

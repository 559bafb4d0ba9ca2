"""Assignments to configs are checked, and do not affect trainers and tuners built before."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

from holdfast import air, train, tune
from holdfast.api.assignment import own_copy
from holdfast.errors import ConfigError
from holdfast.train.torch import TorchConfig
from holdfast.tune import RunConfig, TuneConfig

EXAMPLES: list[tuple[Any, str, Any, Any]] = [  # a config, a field, a good value and a bad one
    (train.ScalingConfig(), "num_workers", 2, -1),
    (train.FailureConfig(), "max_failures", 3, "3"),
    (train.CheckpointConfig(num_to_keep=4), "checkpoint_frequency", 1, -1),
    (train.LoggingConfig(), "log_level", "DEBUG", "LOUD"),
    (train.SyncConfig(), "sync_period", 1.0, -1.0),
    (RunConfig("a", "runs"), "name", "b", "a/b"),
    (TuneConfig(), "num_samples", 5, 0),
    (tune.ResumeConfig(), "errored", tune.ResumeConfig.ResumeType.RESUME, "resume"),
    (TorchConfig(), "timeout_s", 5.0, 0),
    (train.ValidationTaskConfig(), "timeout_s", 1.0, 0),
    (train.ValidationConfig(fn=dict), "task_config", train.ValidationTaskConfig(), 3),
]
every_config = pytest.mark.parametrize(
    ("config", "field", "good", "bad"),
    [(copy.deepcopy(config), field, good, bad) for config, field, good, bad in EXAMPLES],
    ids=[type(config).__name__ for config, _, _, _ in EXAMPLES],
)


@every_config
def test_a_field_can_be_assigned_and_is_checked(
    config: Any, field: str, good: Any, bad: Any
) -> None:
    config = copy.deepcopy(config)
    setattr(config, field, good)
    assert getattr(config, field) == good
    before = dict(vars(config))

    with pytest.raises(ConfigError, match=f"{field}="):
        setattr(config, field, bad)

    assert vars(config) == before


@every_config
def test_a_changed_config_is_as_if_it_had_been_made_so(
    config: Any, field: str, good: Any, bad: Any
) -> None:
    changed = copy.deepcopy(config)
    setattr(changed, field, good)

    assert changed == dataclasses.replace(config, **{field: good})
    assert changed != config
    assert pickle.loads(pickle.dumps(changed)) == changed == copy.copy(changed)
    if type(config).__hash__ is not None and not isinstance(config, RunConfig):
        assert hash(changed) == hash(copy.deepcopy(changed))


@every_config
def test_a_misspelt_field_is_refused(config: Any, field: str, good: Any, bad: Any) -> None:
    misspelt = f"{field}s"

    with pytest.raises(AttributeError, match=f"{misspelt} = …: there is no such field") as refused:
        setattr(config, misspelt, good)

    assert isinstance(refused.value, ConfigError)
    assert refused.value.hint == f"{field}, if that was meant"
    assert misspelt not in vars(config)


def test_a_misspelt_field_of_a_config_of_older_days_is_refused() -> None:
    with pytest.raises(AttributeError, match="names = …: there is no such field"):
        setattr(air.RunConfig("a", "runs"), "names", "b")  # noqa: B010  # type checkers see it too


@every_config
def test_a_field_cannot_be_deleted(config: Any, field: str, good: Any, bad: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be deleted"):
        delattr(config, field)

    assert field in vars(config)


def test_what_does_not_go_together_is_refused_whichever_is_assigned_last() -> None:
    config = train.FailureConfig(fail_fast=True)

    with pytest.raises(ConfigError, match="fail_fast=True: ends at the first failure"):
        config.max_failures = 2

    assert config == train.FailureConfig(fail_fast=True)


def test_what_is_assigned_is_brought_into_form_as_by_the_constructor() -> None:
    config = RunConfig("a", "runs")
    config.storage_path = Path("/lab")  # type: ignore[assignment]
    config.callbacks = (1,)  # type: ignore[assignment]
    logs = train.LoggingConfig()
    logs.log_level = "debug"

    assert (config.storage_path, config.callbacks, logs.log_level) == ("/lab", [1], "DEBUG")


def test_an_older_name_of_a_field_can_be_assigned_too() -> None:
    config = train.CheckpointConfig()
    with pytest.warns(DeprecationWarning, match="is now num_to_keep"):
        setattr(config, "keep_checkpoints_num", 3)  # noqa: B010  # type checkers know better
    with pytest.raises(ConfigError, match="num_to_keep=0"), pytest.warns(match="is now"):
        setattr(config, "keep_checkpoints_num", 0)  # noqa: B010

    assert config == train.CheckpointConfig(num_to_keep=3)


def test_a_name_counts_as_given_once_it_is_assigned() -> None:
    config = RunConfig()
    made_up = config.name
    config.storage_path = "runs"
    assert config.name == made_up and config.given == {"storage_path"}

    config.name = "mine"
    assert config.given == {"storage_path", "name"}

    config.name = None  # type: ignore[assignment]
    assert config.given == {"storage_path"} and config.name not in (None, "mine")


def test_an_older_way_to_say_where_runs_are_kept_works_when_it_is_assigned() -> None:
    config = RunConfig()
    config.local_dir = "/older"
    assert config.storage_path == "/older"
    config.sync_config = train.SyncConfig(upload_dir="s3://lab/runs")
    assert config.storage_path == "s3://lab/runs"

    config.storage_path = "/mine"
    config.local_dir = "/other"
    assert config.storage_path == "/mine"


def test_a_copy_of_ones_own_shares_no_config_list_or_dictionary() -> None:
    scheduler = object()
    run = RunConfig("a", "runs", callbacks=[1], worker_runtime_env={"env_vars": {}})
    own = own_copy(run)
    run.failure_config.max_failures = 7
    run.callbacks.append(2)

    assert own.failure_config.max_failures == 0 and own.callbacks == [1]
    assert own.worker_runtime_env is not run.worker_runtime_env
    assert own_copy(TuneConfig(scheduler=scheduler)).scheduler is scheduler
    assert own_copy(scheduler) is scheduler


def test_a_class_made_from_a_config_may_have_fields_of_its_own() -> None:
    class Mine(RunConfig):
        def __init__(self, project: str) -> None:
            super().__init__(name="a", storage_path="runs")
            self.project = project

    config = Mine("bert")
    config.project = "gpt"
    config.name = "b"

    assert (config.project, config.name) == ("gpt", "b")
    with pytest.raises(ConfigError, match="name="):
        config.name = ""


def loop() -> None:
    """Train nothing."""


def test_a_trainer_does_not_change_with_the_configs_it_was_given() -> None:
    run, scaling = RunConfig("a", "runs"), train.ScalingConfig()
    config = train.ValidationConfig(fn=dict)
    trainer = train.DataParallelTrainer(
        loop, scaling_config=scaling, run_config=run, validation_config=config
    )
    run.name, scaling.num_workers = "b", 5
    run.failure_config.max_failures = 9
    config.task_config = train.ValidationTaskConfig(timeout_s=1.0)

    assert trainer.run_config.name == "a" and trainer.scaling_config.num_workers == 1
    assert trainer.run_config.failure_config.max_failures == 0
    assert trainer.validation_config is not None
    assert trainer.validation_config.task_config is None


def test_a_study_does_not_change_with_the_configs_it_was_given(tmp_path: Path) -> None:
    run, config = RunConfig("a", str(tmp_path)), TuneConfig(num_samples=2)
    tuner = tune.Tuner(lambda config: {"x": 1}, run_config=run, tune_config=config)
    run.name, config.num_samples = "b", 7

    assert len(tuner.fit()) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a"]

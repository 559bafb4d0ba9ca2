from __future__ import annotations

import copy
import dataclasses
import inspect
import numbers
import os
import pickle
import re
import uuid
import warnings
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from holdfast.api.config import (
    CheckpointConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    SyncConfig,
    budget_of,
    retention_of,
)
from holdfast.core.checkpoint.retention import Retention
from holdfast.core.run.budget import Budget
from holdfast.errors import ConfigError


def _build(kind: type, *given: Any, **named: Any) -> Any:
    """Return a config with values that type checkers would refuse."""
    return kind(*given, **named)


# ---------------------------------------------------------------------- what users of Ray write


SIGNATURES = {
    ScalingConfig: (
        "trainer_resources=None, num_workers=1, use_gpu=False, resources_per_worker=None, "
        "placement_strategy='PACK', accelerator_type=None, label_selector=None, use_tpu=False, "
        "topology=None, elastic_resize_monitor_interval_s=60.0"
    ),
    FailureConfig: (
        "max_failures=0, fail_fast=False, controller_failure_limit=-1, "
        "max_preemption_failures=-1, relax_collectives_on_preemption=False, "
        "preemption_grace_s=0.0, *, hang_timeout_s=None, backoff_max_s=30.0, "
        "late_timeout_s=1800.0, preemption_notice_s=25.0"
    ),
    CheckpointConfig: (
        "num_to_keep=None, checkpoint_score_attribute=None, checkpoint_score_order='max', "
        "checkpoint_frequency=0, checkpoint_at_end=None, *, keep_checkpoints_num=None, "
        "checkpoint_score_attr=None"
    ),
    LoggingConfig: "log_level='INFO'",
    SyncConfig: (
        "sync_period=300, sync_timeout=1800, sync_artifacts=False, "
        "sync_artifacts_on_checkpoint=True, *, upload_dir=None, syncer='auto', "
        "sync_on_checkpoint=True"
    ),
    RunConfig: (
        "name=None, storage_path=None, storage_filesystem=None, failure_config=None, "
        "checkpoint_config=None, callbacks=None, worker_runtime_env=None, logging_config=None, "
        "sync_config=None, verbose=None, stop=None, progress_reporter=None, log_to_file=False, "
        "local_dir=None, *, resume=None, preemption_notices=None"
    ),
}


@pytest.mark.parametrize("kind", SIGNATURES, ids=lambda kind: kind.__name__)
def test_arguments_have_the_names_order_and_defaults_of_ray(kind: type) -> None:
    plain = inspect.signature(kind).replace(return_annotation=inspect.Signature.empty)
    bare = [
        parameter.replace(annotation=parameter.empty) for parameter in plain.parameters.values()
    ]

    assert str(plain.replace(parameters=bare)) == f"({SIGNATURES[kind]})"


def test_a_config_of_the_air_era_is_taken_whole_and_without_a_warning() -> None:
    """Tune uses these arguments; Train warns of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = RunConfig(
            name="old",
            failure_config=FailureConfig(fail_fast="raise"),
            checkpoint_config=CheckpointConfig(checkpoint_frequency=5, checkpoint_at_end=True),
            sync_config=SyncConfig(syncer=None),
            verbose=2,
            stop={"training_iteration": 3},
            log_to_file=("out.txt", "err.txt"),
            local_dir="results",
        )

    assert config.failure_config.fail_fast == "raise"
    assert config.stop == {"training_iteration": 3}
    assert config.verbose == 2
    assert config.log_to_file == ("out.txt", "err.txt")


def test_what_is_not_given_is_filled_in() -> None:
    config = RunConfig()

    assert config.failure_config == FailureConfig()
    assert config.checkpoint_config == CheckpointConfig()
    assert config.logging_config == LoggingConfig()
    assert config.callbacks == []
    assert config.worker_runtime_env == {}


@pytest.mark.req("T-053")
@pytest.mark.parametrize("form", ["{}", "train_run-{}", "run_id={}"])
def test_a_name_with_an_id_in_it_is_taken_as_it_is(form: str) -> None:
    name = form.format(uuid.uuid4().hex)

    assert RunConfig(name=name).name == name


@pytest.mark.req("T-078")
def test_every_launch_without_a_name_gets_one_of_its_own_even_within_a_second() -> None:
    by_second = defaultdict(list)
    for _ in range(200):
        name = RunConfig().name
        match = re.fullmatch(r"(holdfast_run-\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)-[0-9a-f]{8}", name)
        assert match, name
        by_second[match[1]].append(name)

    assert max(map(len, by_second.values())) > 1, "no two names of one second: a slow machine?"
    assert all(len(set(names)) == len(names) for names in by_second.values())


# ---------------------------------------------------------------------- where a run is kept


def test_the_default_storage_path_is_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", os.path.join(os.sep, "someone"))

    assert RunConfig().storage_path == os.path.join(os.sep, "someone", "ray_results")


@pytest.mark.parametrize(
    ("named", "storage_path"),
    [
        ({"storage_path": "s3://lab/runs"}, "s3://lab/runs"),
        ({"storage_path": Path("some", "folder")}, os.path.join("some", "folder")),
        ({"local_dir": "shared"}, "shared"),
        ({"local_dir": Path("shared")}, "shared"),
        ({"sync_config": SyncConfig(upload_dir="s3://lab/up")}, "s3://lab/up"),
        ({"sync_config": SyncConfig(upload_dir="s3://lab/up"), "local_dir": "here"}, "s3://lab/up"),
        ({"storage_path": "new", "local_dir": "old"}, "new"),
    ],
)
def test_a_run_is_kept_where_its_era_says(named: dict[str, Any], storage_path: str) -> None:
    assert RunConfig(**named).storage_path == storage_path


def test_secrets_in_a_storage_path_are_kept_but_not_shown() -> None:
    config = RunConfig("x", "s3://key:hush@lab/runs?region=eu&secret_key=hush/hush")

    assert config.storage_path == "s3://key:hush@lab/runs?region=eu&secret_key=hush/hush"
    assert repr(config) == "RunConfig(name='x', storage_path='s3://…@lab/runs?…')"


# ---------------------------------------------------------------------- values


EXAMPLES = [
    ScalingConfig(num_workers=(2, 4), use_gpu=True, resources_per_worker={"CPU": 2}),
    FailureConfig(-1, hang_timeout_s=60.0),
    CheckpointConfig(2, "loss", "min"),
    LoggingConfig("debug"),
    SyncConfig(upload_dir="s3://lab/up"),
    RunConfig("x", "runs", failure_config=FailureConfig(3), callbacks=[1], resume="must"),
]
every_config = pytest.mark.parametrize("config", EXAMPLES, ids=lambda config: type(config).__name__)


@every_config
def test_a_config_comes_back_from_a_pickle_equal(config: Any) -> None:
    assert pickle.loads(pickle.dumps(config)) == config


@every_config
def test_configs_with_the_same_values_are_equal_and_others_are_not(config: Any) -> None:
    different = RunConfig("y", "runs") if isinstance(config, RunConfig) else type(config)()

    assert copy.deepcopy(config) == config
    assert config != different


@every_config
def test_a_config_is_written_as_it_would_be_typed(config: Any) -> None:
    assert eval(repr(config)) == config


def test_a_config_shows_only_what_was_set() -> None:
    assert repr(FailureConfig()) == "FailureConfig()"
    assert repr(FailureConfig(3)) == "FailureConfig(max_failures=3)"


def test_a_run_shows_its_name_and_storage_path_even_where_it_chose_them() -> None:
    config = RunConfig()

    assert repr(config) == f"RunConfig(name={config.name!r}, storage_path={config.storage_path!r})"


def test_a_changed_copy_is_checked_again() -> None:
    config = RunConfig("x", sync_config=SyncConfig(upload_dir="up"), local_dir="here")

    assert dataclasses.replace(config, resume="must").storage_path == "up"
    with pytest.raises(ConfigError, match="resume='yes'"):
        dataclasses.replace(config, **_build(dict, resume="yes"))


def test_a_run_on_a_filesystem_can_be_compared_and_shown() -> None:
    on_disk = RunConfig("x", "runs", pyarrow.fs.LocalFileSystem())

    assert on_disk == RunConfig("x", "runs", pyarrow.fs.LocalFileSystem())
    assert on_disk != RunConfig("x", "runs")
    assert "LocalFileSystem" in repr(on_disk)


def test_the_list_of_callbacks_is_not_the_callers() -> None:
    given = [1]
    config = RunConfig(callbacks=given)
    given.append(2)

    assert config.callbacks == [1]


@numbers.Integral.register
class _Three:
    """A whole number that is no int, as numpy's are."""

    def __int__(self) -> int:
        return 3


def test_numbers_of_other_libraries_become_plain_ones() -> None:
    config = _build(FailureConfig, _Three(), backoff_max_s=Fraction(1, 2))

    assert (config.max_failures, type(config.max_failures)) == (3, int)
    assert (config.backoff_max_s, type(config.backoff_max_s)) == (0.5, float)


# ---------------------------------------------------------------------- translation


@pytest.mark.parametrize(
    ("config", "budget"),
    [
        (FailureConfig(), Budget(failures=0, preemptions=None, starts=None)),
        (FailureConfig(3), Budget(failures=3, preemptions=None, starts=None)),
        (FailureConfig(-1), Budget(failures=None, preemptions=None, starts=None)),
        (
            FailureConfig(max_preemption_failures=0, controller_failure_limit=5),
            Budget(failures=0, preemptions=0, starts=5),
        ),
    ],
)
def test_minus_one_becomes_no_limit(config: FailureConfig, budget: Budget) -> None:
    assert budget_of(config) == budget


@pytest.mark.parametrize(
    ("config", "retention"),
    [
        (CheckpointConfig(), Retention(keep=None, score=None, highest_first=True)),
        (CheckpointConfig(2, "loss", "min"), Retention(keep=2, score="loss", highest_first=False)),
        (CheckpointConfig(1, "a/b"), Retention(keep=1, score="a/b", highest_first=True)),
    ],
)
def test_a_checkpoint_config_becomes_a_retention(
    config: CheckpointConfig, retention: Retention
) -> None:
    assert retention_of(config) == retention

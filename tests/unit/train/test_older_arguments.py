from __future__ import annotations

import warnings
from typing import Any

import pytest

from holdfast.api.config import (
    CheckpointConfig,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    SyncConfig,
)
from holdfast.errors import ConfigError
from holdfast.train.older_arguments import warn_of_older_arguments


@pytest.mark.parametrize(
    ("scaling", "run", "warned"),
    [
        ({"trainer_resources": {"CPU": 1}}, {}, "ScalingConfig(trainer_resources=…)"),
        ({}, {"failure_config": FailureConfig(fail_fast=True)}, "FailureConfig(fail_fast=…)"),
        (
            {},
            {"checkpoint_config": CheckpointConfig(checkpoint_frequency=2)},
            "CheckpointConfig(checkpoint_frequency=…)",
        ),
        (
            {},
            {"checkpoint_config": CheckpointConfig(checkpoint_at_end=False)},
            "CheckpointConfig(checkpoint_at_end=…)",
        ),
        ({}, {"sync_config": SyncConfig()}, "RunConfig(sync_config=…)"),
        ({}, {"verbose": 0}, "RunConfig(verbose=…)"),
        ({}, {"stop": {"loss": 1}}, "RunConfig(stop=…)"),
        ({}, {"progress_reporter": object()}, "RunConfig(progress_reporter=…)"),
        ({}, {"log_to_file": True}, "RunConfig(log_to_file=…)"),
        ({}, {"local_dir": "here"}, "RunConfig(local_dir=…)"),
    ],
)
def test_train_warns_of_an_argument_that_it_does_not_need(
    scaling: dict[str, Any], run: dict[str, Any], warned: str
) -> None:
    with pytest.warns(DeprecationWarning, match="in Train") as caught:
        warn_of_older_arguments(ScalingConfig(**scaling), RunConfig(**run))

    [warning] = caught
    assert str(warning.message).startswith(f"{warned} is deprecated in Train: ")


def test_train_warns_of_each_argument_at_the_line_of_the_user() -> None:
    with pytest.warns(DeprecationWarning, match="in Train") as caught:
        warn_of_older_arguments(ScalingConfig({}), RunConfig(verbose=1, stop={}))

    assert len(caught) == 3
    assert {warning.filename for warning in caught} == {__file__}


def test_a_line_that_is_run_again_warns_once() -> None:
    run = RunConfig(verbose=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            warn_of_older_arguments(ScalingConfig(), run)

    assert len(caught) == 1


def test_todays_arguments_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_older_arguments(
            ScalingConfig(num_workers=(1, 4), use_gpu=True),
            RunConfig(
                "x",
                "s3://lab/runs",
                failure_config=FailureConfig(-1, hang_timeout_s=5, max_preemption_failures=3),
                checkpoint_config=CheckpointConfig(2, "loss", "min"),
                resume="must",
            ),
        )


def test_what_means_nothing_on_one_machine_is_warned_of() -> None:
    scaling = ScalingConfig(accelerator_type="A100", label_selector={"zone": "a"})
    run = RunConfig(failure_config=FailureConfig(relax_collectives_on_preemption=True))

    with pytest.warns(UserWarning, match=r"is ignored: ") as caught:
        warn_of_older_arguments(scaling, run)

    assert [str(warning.message).partition("=")[0] for warning in caught] == [
        "ScalingConfig(accelerator_type",
        "ScalingConfig(label_selector",
        "FailureConfig(relax_collectives_on_preemption",
    ]


def test_what_workers_cannot_be_given_is_warned_of() -> None:
    run = RunConfig(worker_runtime_env={"pip": ["x"], "env_vars": {"A": "1"}, "working_dir": "."})

    with pytest.warns(UserWarning, match=r"pip, working_dir is ignored") as caught:
        warn_of_older_arguments(ScalingConfig(), run)

    assert len(caught) == 1


def test_variables_that_have_no_names_are_refused() -> None:
    run = RunConfig(worker_runtime_env={"env_vars": ["A=1"]})

    with pytest.raises(ConfigError, match=r"\['env_vars'\]=\['A=1'\]: must be a dictionary"):
        warn_of_older_arguments(ScalingConfig(), run)

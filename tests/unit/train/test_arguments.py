"""What a trainer's constructor takes, refuses, and warns of."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.data import DataConfig, from_items
from holdfast.errors import ConfigError
from holdfast.train import (
    Checkpoint,
    DataParallelTrainer,
    RunConfig,
    ScalingConfig,
    ValidationConfig,
)
from holdfast.train.arguments import given_arguments
from holdfast.train.backend import BackendConfig
from holdfast.train.data_parallel_trainer import DataParallelTrainer as SameTrainer
from holdfast.train.trainer import BaseTrainer


def loop() -> None: ...


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_a_trainer_takes_what_trainers_of_today_take() -> None:
    assert parameters(DataParallelTrainer) == [
        "train_loop_per_worker",
        "train_loop_config",
        "backend_config",
        "scaling_config",
        "run_config",
        "datasets",
        "dataset_config",
        "resume_from_checkpoint",
        "metadata",
        "validation_config",
    ]


@pytest.mark.req("T-026")
def test_trainers_that_have_no_function_take_what_the_base_takes() -> None:
    names = ["scaling_config", "run_config", "datasets", "metadata", "resume_from_checkpoint"]

    assert parameters(BaseTrainer) == names
    assert parameters(BaseTrainer.restore) == [
        "path",
        "storage_filesystem",
        "datasets",
        "scaling_config",
        "kwargs",
    ]
    assert parameters(BaseTrainer.can_restore) == ["path", "storage_filesystem"]


@pytest.mark.req("T-019", "T-025")
def test_every_trainer_with_a_function_restores_by_the_same_parameters() -> None:
    from holdfast.train.torch import TorchTrainer

    for trainer in (DataParallelTrainer, TorchTrainer):
        assert parameters(trainer.restore) == [
            "path",
            "train_loop_per_worker",
            "train_loop_config",
            "kwargs",
        ]
        assert parameters(trainer.can_restore) == ["path", "storage_filesystem"]


def test_a_subclass_shows_its_own_constructor() -> None:
    class Mine(DataParallelTrainer):
        def __init__(self, width: int) -> None:
            super().__init__(loop)

    assert parameters(Mine) == ["width"]


def test_the_import_paths_of_older_releases_lead_to_the_same_class() -> None:
    assert SameTrainer is DataParallelTrainer
    assert issubclass(DataParallelTrainer, BaseTrainer)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scaling_config": {"num_workers": 2}}, "scaling_config={'num_workers': 2}: must be a"),
        ({"scaling_config": ScalingConfig}, "must be a ScalingConfig of Holdfast, this is the cl"),
        ({"run_config": "bert-7"}, "run_config='bert-7': must be a RunConfig of Holdfast"),
        ({"train_loop_config": [1]}, "train_loop_config=[1]: must be a dictionary, this is list"),
        ({"datasets": [1]}, "datasets=[1]: must be a dictionary"),
        ({"datasets": {3: []}}, "datasets has the key 3: the name of a dataset is a string"),
        ({"datasets": {"": []}}, "datasets has the key ''"),
        ({"metadata": "x"}, "metadata='x': must be a dictionary"),
        ({"resume_from_checkpoint": "/c"}, "resume_from_checkpoint='/c': must be a Checkpoint"),
        ({"backend_config": object()}, "must be a BackendConfig of Holdfast"),
    ],
)
def test_an_argument_of_another_kind_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        DataParallelTrainer(loop, **given)


def test_datasets_are_kept_by_name_as_they_were_given() -> None:
    rows, config = from_items([1, 2]), DataConfig(["train"])

    trainer = DataParallelTrainer(
        loop, datasets={"train": rows, "valid": lambda: rows}, dataset_config=config
    )

    assert list(trainer.datasets) == ["train", "valid"]
    assert trainer.datasets["train"] is rows
    assert trainer.dataset_config is config


@pytest.mark.req("T-092")
@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (
            {"metadata": {"a": 1}},
            r"DataParallelTrainer\(metadata=…\) is deprecated: pass it inside",
        ),
        (
            {"resume_from_checkpoint": Checkpoint("/c")},
            r"DataParallelTrainer\(resume_from_checkpoint=…\) is deprecated: pass the checkpoint",
        ),
    ],
)
def test_an_argument_of_an_older_era_works_and_says_what_to_do(
    given: dict[str, Any], advice: str
) -> None:
    with pytest.warns(DeprecationWarning, match=advice) as caught:
        trainer = DataParallelTrainer(loop, **given)

    [warning] = caught
    assert warning.filename == __file__
    for name, value in given.items():
        assert getattr(trainer, name) == value


@pytest.mark.req("T-088")
def test_asking_whether_a_run_can_be_restored_warns_at_the_line_of_the_user(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="can_restore is deprecated") as caught:
        assert not DataParallelTrainer.can_restore(tmp_path)

    assert [warning.filename for warning in caught] == [__file__]


def test_todays_arguments_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DataParallelTrainer(
            loop,
            train_loop_config={"lr": 0.1},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig("x"),
            datasets={"train": from_items([1])},
            dataset_config=DataConfig(),
            backend_config=BackendConfig(),
            validation_config=ValidationConfig(fn=lambda checkpoint: {}),
        )


def test_arguments_are_known_by_name_however_they_were_given() -> None:
    class Made:
        def __init__(self, a: int, *, b: int = 0, c: int | None = None, **rest: int) -> None: ...

    made = Made(1)

    assert given_arguments(Made.__init__, made, 1, b=2, c=None, d=4) == {"a": 1, "b": 2, "d": 4}


def test_a_base_trainer_without_a_loop_says_so() -> None:
    with pytest.raises(NotImplementedError, match="BaseTrainer does not override training_loop"):
        BaseTrainer().training_loop()

"""The names of the AIR era: the same classes, and functions that do not raise where they warned."""

from __future__ import annotations

import dataclasses
import inspect
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import air, train
from holdfast.air import session
from holdfast.train.errors import TrainingFailedError
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import STATE, folder_with

OUTSIDE: dict[str, Any] = {
    "get_checkpoint": None,
    "get_metadata": None,
    "get_experiment_name": None,
    "get_trial_name": None,
    "get_trial_id": None,
    "get_run_id": None,
    "get_trial_resources": None,
    "get_trial_dir": None,
    "get_world_size": 1,
    "get_world_rank": 0,
    "get_local_rank": 0,
    "get_local_world_size": 0,
    "get_node_rank": 0,
    "get_dataset_shard": None,
    "get_storage": None,
}


@pytest.mark.parametrize(
    "name",
    [
        "ScalingConfig",
        "FailureConfig",
        "CheckpointConfig",
        "SyncConfig",
        "Result",
        "Checkpoint",
    ],
)
def test_a_name_of_the_air_era_is_the_class_of_today(name: str) -> None:
    assert getattr(air, name) is getattr(train, name)


def test_a_run_config_of_the_air_era_is_one_of_today_by_which_all_goes_on() -> None:
    config = air.RunConfig("run", "/data", stop={"loss": 1}, resume=None)

    assert isinstance(config, train.RunConfig)
    assert "resume" in config.given
    assert inspect.signature(air.RunConfig) == inspect.signature(train.RunConfig)
    assert dataclasses.replace(air.RunConfig("run"), verbose=2).resume == "auto"


def test_air_is_there_without_an_import_of_its_own() -> None:
    assert holdfast.air is air
    assert holdfast.air.session is session
    assert set(session.__all__) == {"report", *OUTSIDE}


@pytest.fixture
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_warned", set())


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.usefixtures("nothing_said")
def test_outside_of_a_training_function_a_warning_and_a_default_are_the_answer(name: str) -> None:
    with pytest.warns(RuntimeWarning, match=rf"session\.{name}\(\) has no effect here") as caught:
        answer = getattr(session, name)()

    assert answer == OUTSIDE[name]
    assert caught[0].filename == __file__


@pytest.mark.usefixtures("nothing_said")
def test_a_report_outside_of_a_training_function_goes_nowhere() -> None:
    with pytest.warns(RuntimeWarning, match="report"):
        session.report({"loss": 1.0})


@pytest.mark.usefixtures("nothing_said")
def test_each_function_warns_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            session.get_world_size()
            session.get_world_rank()

    assert len(caught) == 2


def test_report_takes_its_checkpoint_by_name_as_it_did() -> None:
    parameters = inspect.signature(session.report).parameters

    assert list(parameters) == ["metrics", "checkpoint", "checkpoint_dir_name"]
    assert parameters["checkpoint"].kind is inspect.Parameter.KEYWORD_ONLY


def old_loop(config: dict[str, Any]) -> dict[str, Any]:
    """Train as scripts of that time do, and tell what the functions say."""
    before = session.get_checkpoint()
    with folder_with({STATE: json.dumps({"step": 0})}) as folder:
        checkpoint = air.Checkpoint.from_directory(folder)
        session.report({"loss": config["loss"]}, checkpoint=checkpoint, checkpoint_dir_name="named")
    storage = session.get_storage()
    return {
        "before": before is not None,
        "saved": Path(getattr(session.get_checkpoint(), "path", "")).name,
        "experiment": session.get_experiment_name(),
        "trial": session.get_trial_name(),
        "ids": [session.get_trial_id(), session.get_run_id()],
        "resources": session.get_trial_resources(),
        "folder": session.get_trial_dir(),
        "storage": getattr(storage, "url", None),
        "metadata": dict(session.get_metadata() or {}),
        "places": [
            session.get_world_size(),
            session.get_world_rank(),
            session.get_local_rank(),
            session.get_local_world_size(),
            session.get_node_rank(),
        ],
    }


def test_a_training_function_of_that_time_runs_as_it_is(lab: Lab) -> None:
    with pytest.warns(DeprecationWarning, match="metadata"):
        trainer = train.DataParallelTrainer(
            old_loop,
            train_loop_config={"loss": 0.5},
            scaling_config=air.ScalingConfig(num_workers=2),
            run_config=air.RunConfig(name="run", storage_path=str(lab.storage)),
            metadata={"owner": "ann"},
        )

    result = trainer.fit()

    told = result.return_value
    [trial_id, run_id] = told.pop("ids")
    assert trial_id == run_id
    assert result.metrics == {"loss": 0.5}
    assert told == {
        "before": False,
        "saved": "named",
        "experiment": "run",
        "trial": "run",
        "resources": None,
        "folder": str(lab.run),
        "storage": str(lab.run),
        "metadata": {"owner": "ann"},
        "places": [2, 0, 0, 2, 0],
    }


def no_such_dataset() -> None:
    session.get_dataset_shard("train")


def test_inside_of_a_training_function_mistakes_are_errors(lab: Lab) -> None:
    with pytest.raises(TrainingFailedError, match="train"):
        lab.fit(no_such_dataset)

"""Trials that are training runs themselves."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.train import DataParallelTrainer, ScalingConfig
from holdfast.tune.integration.ray_train import TuneReportCallback
from tests.integration.train.loops import STATE, begin, folder_with, is_first, save
from tests.integration.tune.conftest import Lab, last


def test_a_training_run_of_several_workers_is_a_trial(lab: Lab) -> None:
    notes = lab.notes

    def loop(config: dict[str, Any]) -> None:
        rank = train.get_context().get_world_rank()
        for step in range(begin(notes), 3):
            if step == 2 and rank == 1 and config["x"] == 1 and is_first(notes.with_name("death")):
                os.kill(os.getpid(), signal.SIGKILL)
            save(step)

    trainer = DataParallelTrainer(
        loop,
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(failure_config=train.FailureConfig(max_failures=1)),
    )
    results = lab.fit(trainer, {"train_loop_config": {"x": tune.grid_search([0, 1])}})

    assert results.num_errors == 0, results.errors
    assert [last(one)["step"] for one in results] == [2, 2]
    assert all(one.checkpoint is not None for one in results)
    assert len(list(lab.study.glob("*/run/checkpoint_*"))) >= 4


def test_all_workers_of_a_trial_are_reserved_as_one(lab: Lab) -> None:
    trainer = DataParallelTrainer(lambda: None, scaling_config=ScalingConfig(num_workers=4096))

    with pytest.raises(ValueError, match="only CPU="):
        lab.fit(trainer)


def test_a_trial_passes_on_what_a_run_that_it_launches_itself_reports(lab: Lab) -> None:
    storage = lab.notes.with_name("inner")

    def launch(config: dict[str, Any]) -> None:
        def loop() -> None:
            for step in range(3):
                save(step + config["x"])

        name = f"run-{config['x']}"
        DataParallelTrainer(
            loop,
            run_config=train.RunConfig(name, storage, callbacks=[TuneReportCallback()]),
        ).fit()

    results = lab.fit(launch, {"x": tune.grid_search([0, 10])}, stop={"step": 11})

    assert results.num_errors == 0, results.errors
    assert [last(one)["step"] for one in results] == [2, 11], "a run is not stopped with its trial"
    assert [last(one)["checkpoint_path"] for one in results] == [
        str(storage / "run-0" / "checkpoint_000002"),
        str(storage / "run-10" / "checkpoint_000001"),
    ]


def sizes(results: tune.ResultGrid) -> list[int]:
    assert results.num_errors == 0, results.errors
    return sorted(last(one)["workers"] for one in results)


def report_size() -> None:
    train.report({"workers": train.get_context().get_world_size()})


def test_fields_of_a_scaling_config_are_searched(lab: Lab) -> None:
    trainer = DataParallelTrainer(report_size)
    scaling = ScalingConfig(
        num_workers=tune.grid_search([1, 2]),  # type: ignore[arg-type]
        resources_per_worker={"CPU": tune.choice([0.5])},  # type: ignore[dict-item]
    )
    results = lab.fit(trainer, {"scaling_config": scaling})
    lab.restore(trainer)  # what was drawn is data, so nothing must be given again

    assert sizes(results) == [1, 2]
    configs = [one.config or {} for one in results]
    assert [one["scaling_config"]["num_workers"] for one in configs] == [1, 2]


def test_a_trial_reserves_what_its_own_scaling_config_says(lab: Lab) -> None:
    trainer = DataParallelTrainer(report_size)
    space = {"scaling_config": tune.grid_search([ScalingConfig(num_workers=4096)])}

    with pytest.raises(ValueError, match="only CPU="):
        lab.fit(trainer, space)


def test_what_was_drawn_for_a_scaling_config_is_checked_before_a_trial_starts(lab: Lab) -> None:
    scaling = ScalingConfig(num_workers=tune.choice([-3]))  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="num_workers=-3: less than 0"):
        lab.fit(DataParallelTrainer(report_size), {"scaling_config": scaling})


def test_a_scaling_config_that_nobody_would_draw_from_is_refused() -> None:
    scaling = ScalingConfig(num_workers=tune.grid_search([1, 2]))  # type: ignore[arg-type]
    trainer = DataParallelTrainer(report_size)

    with pytest.raises(ValueError, match="which only a study can draw"):
        DataParallelTrainer(report_size, scaling_config=scaling)
    with pytest.raises(ValueError, match="at scaling_config: fields of a ScalingConfig are drawn"):
        tune.Tuner(lambda config: None, param_space={"scaling_config": scaling})
    with pytest.raises(ValueError, match="at train_loop_config/0: fields"):
        tune.Tuner(trainer, param_space={"train_loop_config": [scaling]})


def test_a_trainers_run_config_is_no_part_of_the_search_space() -> None:
    trainer = DataParallelTrainer(report_size)
    space = {"run_config": train.RunConfig(name="ignored")}

    with pytest.raises(ValueError, match="is stored in the trial's folder"):
        tune.Tuner(trainer, param_space=space)
    tune.Tuner(lambda config: None, param_space=space)  # a name of the function's own


@pytest.mark.parametrize("mode", list(train.CheckpointUploadMode)[:2])
def test_a_trial_is_told_of_its_checkpoints_as_a_worker_is(
    lab: Lab, mode: train.CheckpointUploadMode
) -> None:
    """Also while one is on its way, and of those of the attempt before."""
    notes = lab.notes

    def function(config: dict[str, Any]) -> None:
        for step in range(begin(notes), 4):
            with folder_with({STATE: json.dumps({"step": step})}) as folder:
                train.report(
                    {"step": step},
                    train.Checkpoint.from_directory(folder),
                    checkpoint_upload_mode=mode,
                    delete_local_checkpoint_after_upload=False,
                )
            steps = [one.metrics["step"] for one in train.get_all_reported_checkpoints()]
            assert steps == list(range(step + 1))
            if step == 2 and is_first(notes.with_name("death")):
                os.kill(os.getpid(), signal.SIGKILL)

    [result] = lab.fit(function, failure_config=tune.FailureConfig(max_failures=1))

    assert result.error is None
    assert last(result)["step"] == 3

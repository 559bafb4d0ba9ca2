"""Trials that are training runs themselves."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.train import DataParallelTrainer, ScalingConfig
from holdfast.tune.integration.ray_train import TuneReportCallback
from tests.integration.train.loops import begin, is_first, save
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

    with pytest.raises(ValueError, match="all there is is CPU="):
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

"""The history of a run whose workers and drivers die: old rows and new ones, each step once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import train
from holdfast.train import Checkpoint, Result, WorkerGroupError
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import STATE, folder_with, is_first, load

SAVES = (3, 7)
STEPS = 10


def train_on(config: dict[str, Any]) -> None:
    """Report ten steps, save after some, and do at step 5 what the config says, the first time."""
    saved = load()
    first = 0 if saved is None else saved + 1
    for step in range(first, STEPS):
        if step == 5 and is_first(Path(config["mark"])):
            if config["end"] == "die":
                os._exit(9)
            raise ValueError("not today")
        metrics = {"step": step, "began at": first, "eval": {"rank": 0}}
        if step in SAVES:
            with folder_with({STATE: f'{{"step": {step}}}'}) as folder:
                train.report(metrics, checkpoint=Checkpoint.from_directory(folder))
        else:
            train.report(metrics)


def must_be_whole(result: Result) -> None:
    table = result.metrics_dataframe
    assert list(table.index) == list(range(1, STEPS + 1))
    assert list(table["step"]) == list(range(STEPS))
    assert list(table["began at"]) == [0] * 4 + [4] * 6
    assert list(table["eval/rank"]) == [0] * STEPS
    assert result.metrics == {"step": 9, "began at": 4, "eval": {"rank": 0}}


@pytest.mark.req("T-033")
def test_a_restarted_group_goes_on_with_the_history_after_its_checkpoint(lab: Lab) -> None:
    config = {"mark": str(lab.folder / "mark"), "end": "die"}

    result = lab.fit(train_on, workers=2, max_failures=1, config=config)

    must_be_whole(result)
    must_be_whole(Result.from_path(lab.run))


@pytest.mark.req("T-033")
def test_a_run_that_is_launched_again_goes_on_with_its_history(lab: Lab) -> None:
    config = {"mark": str(lab.folder / "mark"), "end": "raise"}
    with pytest.raises(WorkerGroupError, match="not today"):
        lab.fit(train_on, config=config)
    failed = Result.from_path(lab.run)

    result = lab.fit(train_on, config=config)

    assert failed.metrics is not None and failed.metrics["step"] == 4
    assert len(failed.metrics_dataframe) == 5
    assert "not today" in str(failed.error)
    must_be_whole(result)
    assert Result.from_path(lab.run).error is None


def test_reports_without_any_checkpoint_are_metrics_of_the_run(lab: Lab) -> None:
    def loop() -> None:
        for step in range(3):
            train.report({"step": step})

    result = lab.fit(loop)

    assert result.checkpoint is None
    assert result.metrics == {"step": 2}
    assert list(result.metrics_dataframe["step"]) == [0, 1, 2]

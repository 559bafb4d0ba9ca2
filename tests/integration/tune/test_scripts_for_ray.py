"""What scripts written for Ray rely on, one behaviour each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.tune import TuneConfig, Tuner
from holdfast.tune.schedulers import (
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)
from tests.integration.tune.conftest import Lab

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
    assert tune.ExperimentAnalysis(tmp_path / "study").get_best_config(mode="min")["x"] == 1


def test_a_mode_alone_says_nothing_of_trials_that_return_metrics(lab: Lab) -> None:
    results = lab.fit(
        lambda config: {"loss": config["x"]},
        {"x": tune.grid_search([1, 2])},
        tune={"mode": "min"},
    )

    with pytest.raises(ValueError, match="metric is not known"):
        results.get_best_result()

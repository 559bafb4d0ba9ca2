"""Trainers that cannot work, and what they say."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.train import DataParallelTrainer, FailureConfig, ScalingConfig
from tests.integration.train.conftest import Lab


def two(a: int, b: int) -> None: ...


def two_with_one_default(a: dict[str, Any], b: int = 3) -> int:
    return b


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "two arguments": (lambda: DataParallelTrainer(two), "wants 2 arguments (a, b)"),
    "not a function": (lambda: DataParallelTrainer("train"), "'train' is not a function"),  # type: ignore[arg-type]
    "half a worker": (lambda: ScalingConfig(num_workers=0.5), "num_workers=0.5"),  # type: ignore[arg-type]
    "less than no worker": (lambda: ScalingConfig(num_workers=-1), "num_workers=-1"),
    "less than unlimited": (lambda: FailureConfig(max_failures=-2), "max_failures=-2"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_work_is_refused_before_anything_runs(case: str) -> None:
    build, message = BAD[case]

    with pytest.raises(ConfigError, match=re.escape(message)):
        build()


def test_an_argument_with_a_default_is_no_obstacle(lab: Lab) -> None:
    assert lab.fit(two_with_one_default).return_value == 3


def test_training_without_a_worker_is_refused_and_does_not_hang() -> None:
    with pytest.raises(ConfigError, match="num_workers=0") as refused:
        DataParallelTrainer(lambda: None, scaling_config=ScalingConfig(num_workers=0))

    assert refused.value.hint

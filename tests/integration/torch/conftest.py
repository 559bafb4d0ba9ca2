"""A place to train in with torch: as in the tests of training, with a process group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # noqa: F401  # a driver that has it spares the workers of every run its import

from holdfast.train import FailureConfig, Result, RunConfig, ScalingConfig
from holdfast.train.torch import TorchConfig, TorchTrainer
from tests.integration.train.conftest import Lab


class TorchLab(Lab):
    """Runs training functions with torch, on two workers unless told."""

    def fit(self, loop: Callable[..., Any], *, workers: int = 2, **given: Any) -> Result:
        return self.trainer(loop, workers=workers, **given).fit()

    def trainer(
        self,
        loop: Callable[..., Any],
        *,
        workers: int = 2,
        max_failures: int = 0,
        config: dict[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        **run: Any,
    ) -> TorchTrainer:
        given = {"name": "run", "storage_path": str(self.storage), **run}
        failures = FailureConfig(max_failures=max_failures, backoff_max_s=0.0)
        return TorchTrainer(
            loop,
            train_loop_config=config,
            torch_config=torch_config,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(failure_config=failures, **given),
        )


@pytest.fixture
def lab(tmp_path: Path) -> TorchLab:
    return TorchLab(tmp_path)

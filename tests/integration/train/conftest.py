"""A place to train in: storage, and notes of what the workers saw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.train import DataParallelTrainer, FailureConfig, Result, RunConfig, ScalingConfig
from tests.integration.train.loops import read_notes


class Lab:
    """Runs training functions, always with the same storage path and name unless told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = folder / "storage"
        self.run = self.storage / "run"
        self.notes = folder / "notes"

    def fit(
        self,
        loop: Callable[..., Any],
        *,
        workers: int = 1,
        max_failures: int = 0,
        config: dict[str, Any] | None = None,
        **run: Any,
    ) -> Result:
        return self.trainer(
            loop, workers=workers, max_failures=max_failures, config=config, **run
        ).fit()

    def trainer(
        self,
        loop: Callable[..., Any],
        *,
        workers: int = 1,
        max_failures: int = 0,
        config: dict[str, Any] | None = None,
        controller_failures: int = -1,
        **run: Any,
    ) -> DataParallelTrainer:
        given = {"name": "run", "storage_path": str(self.storage), **run}
        failures = FailureConfig(
            max_failures=max_failures,
            controller_failure_limit=controller_failures,
            backoff_max_s=0.0,
        )
        return DataParallelTrainer(
            loop,
            train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(**{"failure_config": failures, **given}),
        )

    def begun(self, rank: int | None = None) -> list[dict[str, Any]]:
        """Return what the workers noted when they began, in that order."""
        facts = read_notes(self.notes, "began")
        return [fact for fact in facts if rank is None or fact["rank"] == rank]

    def noted(self, what: str) -> list[dict[str, Any]]:
        return read_notes(self.notes, what)

    def committed(self) -> list[str]:
        """Return the names of the checkpoints there are."""
        manifests = self.run / ".holdfast" / "manifests"
        return sorted(path.stem for path in manifests.glob("*.json"))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)

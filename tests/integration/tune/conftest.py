"""A place to search in: storage, and notes of what the trials saw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.tune import FailureConfig, Result, ResultGrid, RunConfig, TuneConfig, Tuner
from tests.integration.train.loops import read_notes


class Lab:
    """Runs studies, always at the same place unless told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = folder / "storage"
        self.study = self.storage / "study"
        self.notes = folder / "notes"

    def tuner(
        self,
        trainable: Any,
        space: Mapping[str, Any] | None = None,
        *,
        max_failures: int = 0,
        fail_fast: bool | str = False,
        tune: Mapping[str, Any] | None = None,
        **run: Any,
    ) -> Tuner:
        failures = FailureConfig(max_failures=max_failures, fail_fast=fail_fast, backoff_max_s=0.0)
        usual = {"name": "study", "storage_path": str(self.storage), "failure_config": failures}
        given = {**usual, **run}
        return Tuner(
            trainable,
            param_space=space,
            tune_config=TuneConfig(**(tune or {})),
            run_config=RunConfig(**given),
        )

    def fit(
        self, trainable: Any, space: Mapping[str, Any] | None = None, **more: Any
    ) -> ResultGrid:
        return self.tuner(trainable, space, **more).fit()

    def restore(self, trainable: Any, **how: Any) -> ResultGrid:
        return Tuner.restore(str(self.study), trainable, **how).fit()

    def noted(self, what: str) -> list[dict[str, Any]]:
        return read_notes(self.notes, what)

    def rows(self, trial_id: str) -> list[dict[str, Any]]:
        """Return what is in the result.json of a trial."""
        [file] = self.study.glob(f"*{trial_id}*/result.json")
        return [json.loads(line) for line in file.read_text().splitlines()]


def last(result: Result) -> dict[str, Any]:
    """Return the last metrics of a trial, which must have some."""
    assert result.metrics is not None
    return result.metrics


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)

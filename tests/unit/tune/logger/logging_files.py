"""What the tests of loggers share: trials, and what readers find in their files."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from holdfast.errors import ObjectMissing
from holdfast.storage.base import Store
from holdfast.tune.logger import (
    CSVLoggerCallback,
    FileLogger,
    JsonLoggerCallback,
    TBXLoggerCallback,
)
from holdfast.tune.trial import Trial
from tests.clocks import FakeClock
from tests.unit.tune.logger.event_reader import Seen, read_events

LOGGERS: dict[str, type[FileLogger]] = {
    "json": JsonLoggerCallback,
    "csv": CSVLoggerCallback,
    "events": TBXLoggerCallback,
}


every_kind = pytest.mark.parametrize("kind", LOGGERS)


def a_trial(number: int = 0, **fields: Any) -> Trial:
    values = {"config": {"lr": 0.5}, "evaluated_params": {"lr": 0.5}, "started_at": 7.0, **fields}
    return Trial(f"t{number:03d}", number=number, folder=f"train_{number:05d}", **values)


def result(step: int, loss: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"training_iteration": step, "loss": loss, "timestamp": 1000 + step, **more}


def event_keys(store: Store, folder: str) -> list[str]:
    return [entry.key for entry in store.entries(folder) if "tfevents" in entry.key]


def events(store: Store, folder: str) -> list[Seen]:
    keys = event_keys(store, folder)
    assert len(keys) <= 1, f"TensorBoard would show every step twice: {keys}"
    return read_events(store.get(keys[0]).data) if keys else []


def rows(kind: str, store: Store, folder: str) -> list[tuple[int, float]]:
    """Return the iterations in a trial's file, each with its loss, as a plain reader finds them."""
    if kind == "events":
        scalars = [seen.scalars for seen in events(store, folder) if seen.scalars]
        return [
            (int(values["ray/tune/training_iteration"]), values["ray/tune/loss"])
            for values in scalars
        ]
    name = {"json": "result.json", "csv": "progress.csv"}[kind]
    try:
        text = store.get(f"{folder}/{name}").data.decode()
    except ObjectMissing:
        return []
    assert not text or text.endswith("\n")
    if kind == "json":
        read = [json.loads(line) for line in text.splitlines()]
    else:
        read = list(csv.DictReader(io.StringIO(text), strict=True))
        assert all(None not in row and None not in row.values() for row in read), "misaligned"
    return [(int(row["training_iteration"]), float(row["loss"])) for row in read]


def a_logger(kind: str, store: Store, clock: Any | None = None) -> FileLogger:
    logger = LOGGERS[kind](clock=clock or FakeClock())
    logger.attach(store)
    return logger


def log_all(logger: FileLogger, *results: dict[str, Any], trial: Any = None) -> None:
    for row in results:
        logger.log_trial_result(0, trial or a_trial(), row)

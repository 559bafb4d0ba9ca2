"""Metric rows for tests to look at: a few written, and what is told of them."""

from __future__ import annotations

from typing import Any

from holdfast.control.metrics.reader import read_metric_rows
from holdfast.control.metrics.writer import METRICS, MetricRows
from holdfast.storage.base import Store


def write_rows(store: Store, count: int, epoch: int = 1) -> None:
    """Keep the rows of steps 1 to `count`."""
    rows = MetricRows(store, epoch)
    for step in range(1, count + 1):
        rows.append(step, 1, {"loss": 1 / step}, 100.0 + step)
    rows.close()


def told(store: Store) -> list[tuple[int, int, Any]]:
    """Return the history without times."""
    return [(row.step, row.attempt, dict(row.metrics)) for row in read_metric_rows(store).rows]


def steps(store: Store) -> list[int]:
    return [step for step, _, _ in told(store)]


def segments(store: Store) -> list[str]:
    return [entry.key for entry in store.entries(METRICS)]

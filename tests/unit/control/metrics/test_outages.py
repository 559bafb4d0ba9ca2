"""Metric rows on stores that fail for a while, or for good."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from holdfast.control.metrics import writer as metric_rows
from holdfast.control.metrics.reader import read_metric_rows
from holdfast.control.metrics.writer import METRICS, MetricRows
from holdfast.errors import StoreBusy
from holdfast.storage.base import ALWAYS, Condition
from holdfast.storage.local.disk import PosixDisk
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.testing.faults import Fail, TappedDisk
from tests.metric_rows import segments, steps
from tests.patience import PATIENCE_S


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches and pauses that a test can wait for."""
    monkeypatch.setattr(metric_rows, "BATCH_S", 0.01)


class Moody(MemoryStore):
    """Fails for a while. A put that failed may arrive all the same, at once or much later."""

    def __init__(self, failures: int, arrives: str) -> None:
        super().__init__()
        self.failures, self.arrives = failures, arrives
        self.late: list[tuple[str, bytes]] = []

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        if self.failures:
            self.failures -= 1
            if self.arrives == "at once":
                super().put(key, data, condition)
            elif self.arrives == "late":
                self.late.append((key, data))
            raise StoreBusy("the line is noisy")
        return super().put(key, data, condition)

    def deliver_late(self) -> None:
        for key, data in self.late:
            super().put(key, data)


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("arrives", ["never", "at once", "late"])
@pytest.mark.parametrize("healthy_before", [True, False])
def test_an_outage_costs_no_row_and_doubles_none(
    arrives: str, healthy_before: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = Moody(0, arrives)
    rows = MetricRows(store, 1)
    if healthy_before:
        rows.append(1, 1, {}, 0.0)
        assert rows.flush(PATIENCE_S)
    store.failures = 3
    for step in (2, 3):
        rows.append(step, 1, {}, 0.0)
        rows.flush(0.02)
    assert rows.flush(PATIENCE_S)
    rows.append(4, 1, {}, 0.0)
    rows.close()
    store.deliver_late()

    assert steps(store) == ([1] if healthy_before else []) + [2, 3, 4]
    assert caplog.text.count("metric rows wait in memory") == 1


def test_rows_rest_in_the_order_they_came_although_a_write_failed_meanwhile() -> None:
    class Interrupting(MemoryStore):
        def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
            if len(later):
                rows.append(later.pop(), 1, {}, 0.0)
                raise StoreBusy("the line is noisy")
            return super().put(key, data, condition)

    store, later = Interrupting(), [3, 2]
    rows = MetricRows(store, 1, in_background=False)
    rows.append(1, 1, {}, 0.0)
    rows.flush(0)
    rows.flush(0)
    rows.close()

    lines = [json.loads(line) for line in store.get(segments(store)[0]).data.splitlines()]
    assert [line["step"] for line in lines[1:]] == [1, 2, 3]


@pytest.mark.usefixtures("_soon")
def test_a_store_that_fails_at_the_end_says_how_much_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Moody(0, "never")
    rows = MetricRows(store, 1)
    rows.append(1, 1, {}, 0.0)
    assert rows.flush(PATIENCE_S)
    store.failures = 10**6
    rows.append(2, 1, {}, 0.0)
    rows.append(3, 1, {}, 0.0)
    rows.close()

    assert "2 rows of metrics could not be stored at memory:// and are lost" in caplog.text
    assert steps(store) == [1]


def test_a_long_outage_fills_the_memory_only_so_far(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metric_rows, "WAITING_BYTES_MAX", 1000)
    store = Moody(1, "never")
    rows = MetricRows(store, 1, in_background=False)
    for step in range(1, 101):
        rows.append(step, 1, {}, 0.0)
    assert not rows.flush(0)
    assert rows.flush(0)
    rows.append(101, 1, {}, 0.0)
    rows.close()

    stored = steps(store)
    assert stored[-1] == 101
    assert stored[:-1] == list(range(1, len(stored)))
    assert f"{101 - len(stored)} rows of metrics could not be stored" in caplog.text


@pytest.mark.parametrize("verb", ["write", "sync", "create", "sync_dir"])
def test_a_disk_that_fails_once_costs_no_row(tmp_path: Path, verb: str) -> None:
    for nth in (1, 2):
        tap = Fail(match=f"{verb} */{METRICS}*", nth=nth, part=0.5)
        store = LocalStore(tmp_path / f"run-{nth}", TappedDisk(PosixDisk(), tap))
        rows = MetricRows(store, 1, in_background=False)
        for step in (1, 2, 3):
            rows.append(step, 1, {}, 0.0)
            rows.flush(0)
        rows.close()

        assert steps(store) == [1, 2, 3]
        if nth == 1:
            assert tap.failed
            assert read_metric_rows(store).torn == 0


def test_a_row_that_was_half_written_when_the_disk_was_full_is_there_once(tmp_path: Path) -> None:
    tap = Fail(errno.ENOSPC, match=f"write */{METRICS}/*", nth=2, part=0.4)
    store = LocalStore(tmp_path / "run", TappedDisk(PosixDisk(), tap))
    rows = MetricRows(store, 1, in_background=False)
    for step in (1, 2, 3):
        rows.append(step, 1, {}, 0.0)
        rows.flush(0)
    rows.close()

    history = read_metric_rows(store)
    assert [row.step for row in history.rows] == [1, 2, 3]
    assert (history.damages, history.torn) == ([], 1)


@pytest.mark.parametrize(
    ("code", "match"),
    [(errno.ENOSPC, f"* */{METRICS}/*"), (errno.EIO, f"sync_dir */{METRICS}")],
    ids=["full", "no names are kept"],
)
def test_a_disk_that_keeps_failing_is_not_littered_with_empty_segments(
    tmp_path: Path, code: int, match: str, caplog: pytest.LogCaptureFixture
) -> None:
    tap = Fail(code, match=match, lasting=True)
    store = LocalStore(tmp_path / "run", TappedDisk(PosixDisk(), tap))
    rows = MetricRows(store, 1, in_background=False)
    rows.append(1, 1, {}, 0.0)
    for _ in range(20):
        assert not rows.flush(0)
    rows.close()

    assert segments(store) == []
    assert caplog.text.count("metric rows wait in memory") == 1
    assert "1 rows of metrics could not be stored" in caplog.text


class Mistaken(MemoryStore):
    """Raises what no store should."""

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        raise ZeroDivisionError


def test_a_mistake_below_is_told_and_not_raised_into_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = MetricRows(Mistaken(), 1)
    rows.append(1, 1, {}, 0.0)
    rows.close()

    assert "ZeroDivisionError" in caplog.text
    assert "1 rows of metrics could not be stored" in caplog.text

"""Metric rows on disks and object stores: what is stored, and when."""

from __future__ import annotations

import json
import logging
import math
import threading
from pathlib import Path

import pytest

from holdfast.control.metrics import writer as metric_rows
from holdfast.control.metrics.reader import History, read_latest, read_metric_rows
from holdfast.control.metrics.writer import MetricRows
from holdfast.control.record.open_run import open_run
from holdfast.core.checkpoint.record import Kept
from holdfast.errors import ConfigError
from holdfast.storage.base import ALWAYS, Blob, Condition, Store
from holdfast.storage.local.disk import PosixDisk
from holdfast.storage.local.store import LocalStore
from holdfast.storage.locate import open_store
from holdfast.storage.memory import MemoryStore
from holdfast.testing.faults import ALLOW, Step, TappedDisk, Verdict
from tests.metric_rows import segments, steps, told, write_rows
from tests.patience import PATIENCE_S
from tests.runs import commit_to, save_files


@pytest.fixture(params=["disk", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "run") if request.param == "disk" else MemoryStore()


# ---------------------------------------------------------------------- what is kept


def test_a_row_comes_back_as_it_was(store: Store) -> None:
    metrics = {
        "loss": math.inf,
        "low": -math.inf,
        "eval": {"acc": 0.5, "per class": [1, 2.5, None]},
        "$float": "mine",
        "név": "ő\n\u2028",
        "big": 2**62,
        "yes": True,
    }
    rows = MetricRows(store, 1)
    rows.append(7, 3, metrics, 1234.5)
    rows.append(8, 3, {"loss": math.nan}, 1235)
    rows.close()

    first, second = read_metric_rows(store).rows
    assert (first.step, first.attempt, first.time, first.metrics) == (7, 3, 1234.5, metrics)
    assert math.isnan(second.metrics["loss"])


def test_rows_can_be_read_with_any_json_tool(store: Store) -> None:
    write_rows(store, 2)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    [key] = segments(store)
    lines = [json.loads(line, parse_constant=refuse) for line in store.get(key).data.splitlines()]
    assert key == ".holdfast/metrics/000001-000000.jsonl"
    assert lines[0]["format"] == 1
    assert [(line["step"], line["attempt"], line["metrics"]["loss"]) for line in lines[1:]] == [
        (1, 1, 1.0),
        (2, 1, 0.5),
    ]


def test_what_is_done_to_metrics_after_they_were_taken_changes_nothing(store: Store) -> None:
    rows, metrics = MetricRows(store, 1), {"loss": [1.0]}
    rows.append(1, 1, metrics, 0.0)
    metrics["loss"].clear()
    rows.close()

    assert told(store) == [(1, 1, {"loss": [1.0]})]


def test_metrics_that_cannot_be_kept_are_refused_at_once_and_cost_no_others(store: Store) -> None:
    rows = MetricRows(store, 1)
    rows.append(1, 1, {"loss": 1.0}, 0.0)
    with pytest.raises(ConfigError, match="cannot store this as JSON"):
        rows.append(2, 1, {"loss": object()}, 0.0)
    rows.close()

    assert steps(store) == [1]


def test_a_run_that_reported_nothing_has_no_history(store: Store) -> None:
    MetricRows(store, 1).close()

    assert read_metric_rows(store) == History([], [], 0)
    assert read_latest(store).row is None
    assert segments(store) == []


@pytest.mark.req("T-033")
def test_a_resumed_run_goes_on_with_the_history_where_its_checkpoint_was(
    tmp_path: Path,
) -> None:
    files = save_files(tmp_path / "files", {"model.pt": b"weights"})
    store = open_store(tmp_path / "run")
    with open_run(store) as run:
        first = MetricRows(run.store, run.lease.epoch)
        first.begin(1, 0)
        for step in range(1, 6):
            first.append(step, 1, {"step": step, "attempt": 1}, 0.0)
        commit_to(run, files, step=3, metrics={"step": 3, "attempt": 1})
        first.close()
    with open_run(store) as run:
        newest = run.newest_good()
        assert newest is not None and newest.step == 3
        second = MetricRows(run.store, run.lease.epoch)
        second.begin(2, newest.step)
        for step in range(4, 8):
            second.append(step, 2, {"step": step, "attempt": 2}, 0.0)
        second.close()

    history = read_metric_rows(store).rows
    assert [row.metrics for row in history] == [
        {"step": step, "attempt": 1 if step <= 3 else 2} for step in range(1, 8)
    ]


def test_a_driver_that_was_replaced_can_write_late_and_changes_nothing(store: Store) -> None:
    old = MetricRows(store, 1, in_background=False)
    old.begin(1, 0)
    for step in (1, 2):
        old.append(step, 1, {"by": "old"}, 0.0)
    old.flush(0)
    new = MetricRows(store, 2, in_background=False)
    new.begin(2, 1)
    new.append(2, 2, {"by": "new"}, 0.0)
    new.close()
    for step in (3, 4):
        old.append(step, 1, {"by": "old"}, 0.0)
    old.close()

    assert told(store) == [(1, 1, {"by": "old"}), (2, 2, {"by": "new"})]


def test_an_attempt_that_reported_nothing_still_undoes_what_it_would_have_done_again(
    store: Store,
) -> None:
    rows = MetricRows(store, 1)
    for step in (1, 2, 3):
        rows.append(step, 1, {}, 0.0)
    rows.begin(2, 1)
    rows.close()

    assert steps(store) == [1]


def test_what_a_slower_rank_says_of_a_step_that_has_its_row_is_not_kept(store: Store) -> None:
    rows = MetricRows(store, 1)
    for step in (1, 2, 3):
        rows.append(step, 1, {"rank": 0}, 0.0)
    for step in (2, 3, 4):  # rank 0 has returned, and rank 1 is the lowest now
        rows.append(step, 1, {"rank": 1}, 0.0)
    rows.begin(2, 1)
    rows.append(2, 2, {"rank": 0}, 0.0)
    rows.close()

    assert told(store) == [(1, 1, {"rank": 0}), (2, 2, {"rank": 0})]
    assert sum(line.count(b'"step"') for line in _lines(store)) == 5


def _lines(store: Store) -> list[bytes]:
    return [line for key in segments(store) for line in store.get(key).data.splitlines()]


def test_two_writers_of_one_epoch_do_not_write_over_each_other(store: Store) -> None:
    first, second = MetricRows(store, 1), MetricRows(store, 1)
    first.append(1, 1, {}, 0.0)
    assert first.flush(PATIENCE_S)
    second.append(2, 1, {}, 0.0)
    second.close()
    first.append(3, 1, {}, 0.0)
    first.close()

    assert steps(store) == [1, 2, 3]


def test_segments_are_begun_anew_when_they_are_full(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_rows, "OBJECT_BYTES", 500)
    monkeypatch.setattr(metric_rows, "FILE_BYTES", 500)
    rows = MetricRows(store, 12, in_background=False)
    for step in range(1, 31):
        rows.append(step, 1, {"loss": step}, 0.0)
        rows.flush(0)
    rows.close()

    assert steps(store) == list(range(1, 31))
    assert len(segments(store)) > 3
    assert all(len(store.get(key).data) < 700 for key in segments(store))


def test_the_last_row_is_found_without_reading_the_whole_history(tmp_path: Path) -> None:
    class Counting(MemoryStore):
        gets = 0

        def get(self, key: str) -> Blob:
            self.gets += 1
            return super().get(key)

    store = Counting()
    for epoch in range(1, 9):
        rows = MetricRows(store, epoch)
        rows.begin(epoch, epoch - 1)
        if epoch < 8:  # the last driver died before it reported anything
            rows.append(epoch, epoch, {"epoch": epoch}, 0.0)
        rows.close()

    store.gets = 0
    last = read_latest(store).row

    assert last is not None and last.metrics == {"epoch": 7}
    assert store.gets == 2


def test_a_checkpoint_stands_in_for_its_row_where_that_was_lost(store: Store) -> None:
    def kept(number: int, step: int | None, attempt: int) -> Kept:
        return Kept(
            number=number, directory=f"c{number}", epoch=1, attempt=attempt, step=step,
            metrics={"of": "checkpoint"}, created=5.0,
        )  # fmt: skip

    write_rows(store, 2)
    rows = MetricRows(store, 2)
    rows.begin(3, 4)
    rows.close()
    checkpoints = [kept(0, 2, 1), kept(1, 4, 2), kept(2, 6, 2), kept(3, None, 1)]

    history = read_metric_rows(store, checkpoints).rows

    assert [(row.step, row.attempt) for row in history] == [(1, 1), (2, 1), (4, 2)]
    assert history[1].metrics == {"loss": 0.5}
    assert read_latest(store, checkpoints).row == history[-1]


# ---------------------------------------------------------------------- when it is written


class Watched(MemoryStore):
    """A store that records every put of rows, and blocks puts while it is shut."""

    def __init__(self) -> None:
        super().__init__()
        self.has_put, self.is_open, self.puts = threading.Event(), threading.Event(), 0
        self.is_open.set()

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        assert self.is_open.wait(PATIENCE_S)
        version = super().put(key, data, condition)
        self.puts += 1
        self.has_put.set()
        return version


def test_a_row_is_at_rest_soon_without_being_asked_for() -> None:
    store = Watched()
    rows = MetricRows(store, 1)
    rows.append(1, 1, {}, 0.0)

    assert store.has_put.wait(PATIENCE_S)
    assert steps(store) == [1]
    rows.close()


def test_rows_that_come_together_are_written_together() -> None:
    store = Watched()
    write_rows(store, 1000)

    assert store.puts <= 2
    assert len(steps(store)) == 1000


def test_a_store_that_hangs_does_not_keep_the_run_waiting(caplog: pytest.LogCaptureFixture) -> None:
    store = Watched()
    store.is_open.clear()
    rows = MetricRows(store, 1)
    for step in range(1, 4):
        rows.append(step, 1, {}, 0.0)
        assert not rows.flush(0.01)
    rows.close(timeout_s=0.01)

    assert "3 rows of metrics could not be stored" in caplog.text
    store.is_open.set()


def test_rows_that_come_while_others_are_written_are_written_too() -> None:
    store = Watched()
    store.is_open.clear()
    rows = MetricRows(store, 1)
    rows.append(1, 1, {}, 0.0)
    assert not rows.flush(0.05)
    rows.append(2, 1, {}, 0.0)
    store.is_open.set()

    assert rows.flush(PATIENCE_S)
    assert steps(store) == [1, 2]
    rows.close()


def test_rows_after_the_end_are_not_taken_and_closing_twice_is_fine(store: Store) -> None:
    rows = MetricRows(store, 1)
    rows.append(1, 1, {}, 0.0)
    rows.close()
    rows.append(2, 1, {}, 0.0)
    rows.close()

    assert steps(store) == [1]


class CountSyncs:
    """Counts what a disk is asked to make durable."""

    def __init__(self) -> None:
        self.syncs = 0

    def judge(self, step: Step) -> Verdict:
        self.syncs += step.verb == "sync"
        return ALLOW


def test_a_thousand_rows_cost_a_disk_no_more_than_two_syncs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    count = CountSyncs()
    write_rows(LocalStore(tmp_path / "run", TappedDisk(PosixDisk(), count)), 1000)

    assert count.syncs <= 2
    assert caplog.text == ""

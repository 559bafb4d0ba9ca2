"""`Result`: the outcome of a run, also when it is read from its folder alone."""

from __future__ import annotations

import math
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pyarrow.fs
import pytest

from holdfast.control.metrics.writer import METRICS, MetricRows
from holdfast.control.record.open_run import OpenRun, open_run
from holdfast.core.checkpoint.retention import Retention
from holdfast.core.run.budget import Budget
from holdfast.core.run.history import KIND, data_of
from holdfast.core.run.machine import (
    DriverStarted,
    Ending,
    Event,
    GroupEnded,
    GroupNotStarted,
    StopRequested,
)
from holdfast.core.run.outcomes import Died, Finished, Raised, WorkerExit
from holdfast.errors import ConfigError, RunMissing, StoreBusy
from holdfast.storage.base import Entry, Store
from holdfast.storage.locate import open_store
from holdfast.storage.memory import MemoryStore
from holdfast.train import Result, WorkerGroupError
from holdfast.train.errors import ControllerError
from holdfast.train.result import result_of
from tests.metric_rows import write_rows
from tests.runs import commit_to, save_files


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return save_files(tmp_path / "files", {"model.pt": b"weights"})


@pytest.fixture
def run(tmp_path: Path) -> Iterator[OpenRun]:
    """A run that is open, with its history among its accounts."""
    with open_run(open_store(tmp_path / "lab" / "bert-7")) as run:
        yield run


def happen(run: OpenRun, *events: Event) -> None:
    for event in events:
        run.note(KIND, data_of(event))


def report(run: OpenRun, *metrics: dict[str, Any], attempt: int = 1, after: int = 0) -> None:
    rows = MetricRows(run.store, run.lease.epoch)
    rows.begin(attempt, after)
    for step, row in enumerate(metrics, start=after + 1):
        rows.append(step, attempt, row, 0.0)
    rows.close()


def result(run: OpenRun, retention: Retention | None = None) -> Result:
    return result_of(run.store, run.record, retention or Retention())


# ---------------------------------------------------------------------- metrics


def test_metrics_are_the_last_reported_also_if_a_checkpoint_came_before(
    run: OpenRun, files: Path
) -> None:
    report(run, {"epoch": 0}, {"epoch": 1}, {"epoch": 2})
    commit_to(run, files, step=2, metrics={"epoch": 1})

    assert result(run).metrics == {"epoch": 2}


def test_metrics_are_those_of_the_checkpoint_if_its_row_was_lost(run: OpenRun, files: Path) -> None:
    report(run, {"epoch": 0})
    commit_to(run, files, step=2, metrics={"epoch": 1})

    assert result(run).metrics == {"epoch": 1}
    assert list(result(run).metrics_dataframe["epoch"]) == [0, 1]


def test_a_checkpoint_that_says_no_step_still_gives_its_metrics(run: OpenRun, files: Path) -> None:
    commit_to(run, files, metrics={"epoch": 1})

    assert result(run).metrics == {"epoch": 1}


def test_a_run_that_reported_nothing_has_no_metrics_and_an_empty_table(run: OpenRun) -> None:
    outcome = result(run)

    assert (outcome.metrics, outcome.checkpoint, outcome.error) == (None, None, None)
    assert len(outcome.metrics_dataframe) == 0


def test_a_report_of_no_metrics_is_a_report(run: OpenRun) -> None:
    report(run, {}, {})

    assert result(run).metrics == {}
    assert len(result(run).metrics_dataframe) == 2


@pytest.mark.req("T-033")
def test_the_table_has_a_row_for_each_step_once_after_a_rewind(run: OpenRun) -> None:
    report(run, {"loss": 5.0}, {"loss": 4.0}, {"loss": math.nan, "eval": {"acc": 0.1}})
    report(run, {"loss": 3.0}, {"eval": {"acc": 0.5}, "note": "x"}, attempt=2, after=2)

    table = result(run).metrics_dataframe

    expected = pd.DataFrame(
        {
            "loss": [5.0, 4.0, 3.0, None],
            "eval/acc": [None, None, None, 0.5],
            "note": [None, None, None, "x"],
        },
        index=pd.Index([1, 2, 3, 4], name="step"),
    )
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)


def test_the_table_is_of_the_result_and_not_of_what_came_after(run: OpenRun) -> None:
    nothing = result(run)
    report(run, {"loss": 1.0}, {"loss": 0.9})
    outcome = result(run)
    report(run, {"loss": 0.5}, attempt=2, after=1)

    assert len(nothing.metrics_dataframe) == 0
    assert outcome.metrics == {"loss": 0.9}
    assert list(outcome.metrics_dataframe["loss"]) == [1.0, 0.9]
    assert list(result(run).metrics_dataframe["loss"]) == [1.0, 0.5]


def test_without_pandas_the_error_says_what_to_install(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(ConfigError, match="pip install pandas"):
        _ = result(run).metrics_dataframe


def test_a_store_that_fails_now_does_not_cost_the_result_of_a_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Deaf(MemoryStore):
        def entries(self, prefix: str = "") -> Iterator[Entry]:
            if prefix == METRICS:
                raise StoreBusy("the line is noisy")
            return super().entries(prefix)

    with open_run(Deaf()) as run:
        outcome = result(run)

    assert outcome.metrics is None
    assert "the last metrics cannot be read: the line is noisy" in caplog.text


def test_a_result_travels_with_its_history(run: OpenRun, files: Path) -> None:
    report(run, {"loss": 1.0}, {"loss": 0.5})
    commit_to(run, files, step=2, metrics={"loss": 0.5})

    there = pickle.loads(pickle.dumps(result(run)))

    assert there.metrics == {"loss": 0.5}
    assert list(there.metrics_dataframe["loss"]) == [1.0, 0.5]
    assert "_history" not in repr(there)


# ---------------------------------------------------------------------- checkpoints


def test_checkpoints_are_ordered_from_worst_to_best(run: OpenRun, files: Path) -> None:
    for step, score in enumerate([5, 1, 9, 2], start=1):
        commit_to(run, files, step=step, metrics={"eval": {"score": score}})

    by_score = result(run, Retention(score="eval/score"))
    by_age = result(run)

    assert [m["eval"]["score"] for _, m in by_score.best_checkpoints] == [1, 2, 5, 9]
    assert [m["eval"]["score"] for _, m in by_age.best_checkpoints] == [5, 1, 9, 2]
    assert by_score.checkpoint is not None and by_score.checkpoint.path.endswith("_000003")
    assert by_score.metrics == {"eval": {"score": 2}}


def test_the_best_checkpoint_is_chosen_by_any_metric(run: OpenRun, files: Path) -> None:
    for step, loss in enumerate([math.nan, 2.0, 1.0, 2.0, 1.0, "high"], start=1):
        commit_to(run, files, step=step, metrics={"a": {"loss": loss}})
    outcome = result(run)

    assert outcome.get_best_checkpoint("a/loss", "max").path.endswith("checkpoint_000003")
    assert outcome.get_best_checkpoint("a/loss", "min").path.endswith("checkpoint_000004")
    with pytest.raises(RuntimeError, match=r"no checkpoint has a number for 'b'.*: a/loss"):
        outcome.get_best_checkpoint("b", "min")
    with pytest.raises(ValueError, match="mode='best'"):
        outcome.get_best_checkpoint("a/loss", "best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="metric=3"):
        outcome.get_best_checkpoint(3, "min")  # type: ignore[arg-type]


def test_without_checkpoints_there_is_no_best_one(run: OpenRun) -> None:
    with pytest.raises(RuntimeError, match="no checkpoint"):
        result(run).get_best_checkpoint("loss", "min")


# ---------------------------------------------------------------------- opened from its folder


def fail(run: OpenRun, *exits: WorkerExit) -> None:
    happen(run, DriverStarted(Budget()), GroupEnded(1, exits))


@pytest.mark.req("T-079")
def test_a_run_opened_from_its_folder_tells_its_name_and_all_there_is(
    tmp_path: Path, files: Path
) -> None:
    folder = tmp_path / "lab" / "bert-7"
    with open_run(open_store(folder)) as run:
        report(run, {"epoch": 3}, {"epoch": 4})
        commit_to(run, files, step=2, metrics={"epoch": 4})
    moved = folder.rename(tmp_path / "elsewhere")

    outcome = Result.from_path(moved)

    assert outcome.name == "bert-7"
    assert outcome.path == str(moved)
    assert outcome.metrics is not None and outcome.metrics["epoch"] == 4
    assert list(outcome.metrics_dataframe["epoch"]) == [3, 4]
    assert outcome.checkpoint is not None
    with outcome.checkpoint.as_directory() as opened:
        assert Path(opened, "model.pt").read_bytes() == b"weights"
    assert isinstance(outcome.filesystem, pyarrow.fs.LocalFileSystem)
    assert (outcome.error, outcome.return_value, outcome.config) == (None, None, None)


def test_a_failed_run_opened_from_its_folder_says_how_it_failed(run: OpenRun) -> None:
    fail(
        run,
        Raised(0, "n", "ValueError: loss is nan", "Traceback: train.py, line 7"),
        Died(1, "n", 77, signal=9),
    )

    error = Result.from_path(str(run.store.url)).error

    assert isinstance(error, WorkerGroupError)
    assert "SIGKILL" in str(error)
    assert set(error.worker_failures) == {0, 1}
    assert "raised ValueError: loss is nan" in str(error.worker_failures[0])
    assert error.worker_failures[0].__notes__ == ["Traceback: train.py, line 7"]
    assert "SIGKILL" in str(error.worker_failures[1])


def test_a_run_whose_workers_never_came_up_says_so_too(run: OpenRun) -> None:
    happen(run, DriverStarted(Budget(starts=0)), GroupNotStarted(1, "no room"))

    assert isinstance(Result.from_path(str(run.store.url)).error, ControllerError)


@pytest.mark.parametrize(
    "events",
    [
        [GroupEnded(1, (Finished(0, "n"),))],
        [StopRequested(Ending.STOPPED), GroupEnded(1, ())],
        [StopRequested(Ending.PREEMPTED), GroupEnded(1, ())],
        [],
        [GroupEnded(1, (Raised(0, "n", "E", ""),)), DriverStarted(Budget())],
    ],
    ids=["succeeded", "stopped", "preempted", "interrupted", "launched again"],
)
def test_a_run_that_did_not_fail_has_no_error(run: OpenRun, events: list[Event]) -> None:
    happen(run, DriverStarted(Budget()), *events)

    assert Result.from_path(str(run.store.url)).error is None


def test_the_wrong_folder_is_an_error_that_names_the_right_one(
    run: OpenRun, tmp_path: Path
) -> None:
    with pytest.raises(RunMissing, match="bert-7"):
        Result.from_path(tmp_path / "lab")
    with pytest.raises(RunMissing, match="there is no run at") as nothing:
        Result.from_path(tmp_path / "lab" / "bert-8")
    assert isinstance(nothing.value, RuntimeError)
    with pytest.raises(RunMissing, match="inside one") as refused:
        Result.from_path(tmp_path / "lab" / "bert-7" / "logs" / "attempt-1")
    assert refused.value.hint == f"name {tmp_path / 'lab' / 'bert-7'}"
    assert not (tmp_path / "lab" / "bert-8").exists()


def test_a_run_can_be_opened_through_a_filesystem_of_the_users(tmp_path: Path, files: Path) -> None:
    folder = tmp_path / "lab" / "bert-7"
    with open_run(open_store(folder)) as run:
        report(run, {"epoch": 0}, {"epoch": 1})
        commit_to(run, files, step=2, metrics={"epoch": 1})

    for filesystem in (fsspec.filesystem("file"), pyarrow.fs.LocalFileSystem()):
        outcome = Result.from_path(str(folder), storage_filesystem=filesystem)
        assert outcome.metrics == {"epoch": 1}
        assert list(outcome.metrics_dataframe["epoch"]) == [0, 1]
        assert outcome.filesystem is filesystem


def test_opening_a_result_writes_nothing(tmp_path: Path) -> None:
    store: Store = open_store(tmp_path / "run")
    with open_run(store):
        pass
    write_rows(store, 3)
    before = sorted(str(path) for path in tmp_path.rglob("*"))

    _ = Result.from_path(tmp_path / "run").metrics_dataframe

    assert sorted(str(path) for path in tmp_path.rglob("*")) == before

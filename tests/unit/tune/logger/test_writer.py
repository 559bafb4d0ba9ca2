"""A thread that writes for loggers: soon, durably when it is asked to, and whatever fails."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.storage.base import Store
from holdfast.storage.locate import open_store
from holdfast.tune.logger.writer import Writer
from tests.patience import wait_until
from tests.unit.tune.logger.logging_files import (
    a_logger,
    a_trial,
    every_kind,
    log_all,
    result,
    rows,
)


def await_rows(kind: str, store: Store, folder: str, count: int) -> list[tuple[int, float]]:
    def look() -> list[tuple[int, float]]:
        try:
            return rows(kind, store, folder)
        except AssertionError:  # it is being written
            return []

    wait_until(lambda: len(look()) >= count)
    return look()


@every_kind
def test_a_writer_writes_rows_without_being_asked(kind: str, store: Store) -> None:
    logger = a_logger(kind, store)
    writer = Writer([logger], every_s=0.01)
    logger.write_by(writer)
    writer.start()
    log_all(logger, result(1), result(2))
    logger.log_trial_end(a_trial())

    assert await_rows(kind, store, "train_00000", 2) == [(1, 0.0), (2, 0.0)]
    logger.on_experiment_end([])


@every_kind
def test_what_no_writer_came_to_is_written_at_the_end_of_the_study(kind: str, store: Store) -> None:
    threads = set(threading.enumerate())
    logger = a_logger(kind, store)
    writer = Writer([logger], every_s=3600.0)
    logger.write_by(writer)
    writer.start()
    log_all(logger, result(1))
    logger.reconcile(a_trial(1), [result(1), result(2)])
    assert rows(kind, store, "train_00000") == rows(kind, store, "train_00001") == []

    logger.on_experiment_end([])

    assert rows(kind, store, "train_00000") == [(1, 0.0)]
    assert rows(kind, store, "train_00001") == [(1, 0.0), (2, 0.0)]
    assert set(threading.enumerate()) <= threads


def test_one_logger_that_fails_does_not_keep_a_writer_from_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def flush(self, *, durable: bool = True) -> bool:
            raise RuntimeError("no")

    store = open_store(tmp_path)
    logger = a_logger("json", store)
    writer = Writer([Broken(), logger], every_s=0.01)
    logger.write_by(writer)
    writer.start()
    log_all(logger, result(1))

    assert await_rows("json", store, "train_00000", 1) == [(1, 0.0)]
    logger.on_experiment_end([])
    assert "Broken could not write" in caplog.text


def test_a_writer_makes_all_durable_aside_that_waits_when_it_is_asked_to(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    logger = a_logger("json", store)
    flushed: list[bool] = []
    is_full = True

    class Noting:
        def flush(self, *, durable: bool = True) -> bool:
            flushed.append(durable)
            return logger.flush(durable=durable) and not is_full

    writer = Writer([Noting()], every_s=0.01)
    logger.write_by(writer)
    writer.start()
    log_all(logger, result(1))
    is_settled = writer.settle()
    wait_until(lambda: flushed.count(True) >= 2)
    assert not is_settled(), "it has failed, and is tried again"

    is_full = False
    wait_until(is_settled)

    assert rows("json", store, "train_00000") == [(1, 0.0)]
    assert flushed[flushed.index(True) - 1] is False, "first all is written, then synced"
    asked_anew = writer.settle()
    wait_until(asked_anew)
    logger.on_experiment_end([])


def test_without_a_writer_all_is_durable_at_once(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    logger = a_logger("json", store)
    log_all(logger, result(1))

    assert Writer([logger]).settle()()
    assert rows("json", store, "train_00000") == [(1, 0.0)]


def test_rows_that_come_faster_than_a_writer_writes_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.tune.logger.row_files.WAITING_ROWS_MAX", 20)
    store = open_store(tmp_path)
    logger = a_logger("json", store)
    logger.write_by(Writer([logger], every_s=3600.0))
    log_all(logger, *[result(step) for step in range(1, 101)])
    logger.on_experiment_end([])

    assert len(rows("json", store, "train_00000")) == 100

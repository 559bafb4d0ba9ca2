"""When loggers write, what they keep in memory, and what they do on a disk that fails."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.storage.base import Store
from holdfast.storage.local.disk import PosixDisk
from holdfast.storage.local.store import LocalStore
from holdfast.storage.locate import open_store
from holdfast.storage.memory import MemoryStore
from holdfast.testing.faults import ALLOW, Refuse, Step, TappedDisk, Verdict
from holdfast.tune.logger.growing_files import growing_files_on
from holdfast.tune.logger.json import JsonLines
from holdfast.tune.logger.row_files import RowFiles
from tests.clocks import FakeClock
from tests.unit.tune.logger.logging_files import (
    LOGGERS,
    a_logger,
    a_trial,
    every_kind,
    log_all,
    result,
    rows,
)


@every_kind
def test_without_a_writer_rows_are_written_when_others_come_half_a_second_later(
    kind: str, tmp_path: Path
) -> None:
    clock, store = FakeClock(), open_store(tmp_path)
    logger = a_logger(kind, store, clock)
    log_all(logger, result(1))
    assert rows(kind, store, "train_00000") == []

    clock.time += 0.6
    log_all(logger, result(2))

    assert rows(kind, store, "train_00000") == [(1, 0.0), (2, 0.0)]


# ---------------------------------------------------------------------- new trials


class CountingDisk(PosixDisk):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name != "asked":
            self.asked.append(name)
        return super().__getattribute__(name)


@every_kind
def test_nothing_is_read_or_listed_for_a_trial_that_is_new(kind: str, tmp_path: Path) -> None:
    disk = CountingDisk()
    logger = a_logger(kind, LocalStore(tmp_path, disk))
    logger.expect(a_trial())
    (tmp_path / "train_00000").mkdir()
    logger.log_trial_start(a_trial())
    log_all(logger, result(1), result(2))
    disk.asked.clear()
    logger.flush(durable=False)

    assert disk.asked == ["create", "write", "close"] * (2 if kind == "json" else 1)


@every_kind
def test_what_is_there_of_a_trial_that_counts_as_new_is_superseded(kind: str, store: Store) -> None:
    """A driver died, and its journal knows nothing of a trial that had begun to write."""
    lost = a_logger(kind, store)
    log_all(lost, result(1, 9.0), result(2, 9.0))
    lost.flush()
    lost.rewind(a_trial(), 1)

    logger = a_logger(kind, store)
    logger.expect(a_trial())
    log_all(logger, result(1, 1.0))
    logger.flush()

    assert rows(kind, store, "train_00000") == [(1, 1.0)]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@every_kind
def test_no_file_stays_open_between_two_batches(kind: str, tmp_path: Path) -> None:
    logger = a_logger(kind, open_store(tmp_path))
    before = open_files()
    for number in range(300):
        trial = a_trial(number)
        logger.log_trial_start(trial)
        log_all(logger, result(1), trial=trial)
        logger.flush(durable=False)
        assert open_files() == before
        logger.log_trial_end(trial)
    logger.flush()

    assert len(list(tmp_path.iterdir())) == 300


def test_nothing_is_kept_of_trials_that_are_over(store: Store) -> None:
    files = RowFiles(growing_files_on(store), JsonLines(), "result.json")
    for number in range(50):
        files.add(f"t{number}", result(1))
        files.end(f"t{number}")
    files.add("alive", result(1))

    assert files.flush(durable=False)
    assert len(files) == 1


def test_of_very_many_trials_that_wait_only_some_are_kept_in_memory(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    files = RowFiles(growing_files_on(store), JsonLines(), "result.json")
    for step in (1, 2):
        for number in range(1100):
            files.add(f"t{number}", result(step))
        assert files.flush(durable=False)
        assert len(files) <= 1024

    assert rows("json", store, "t0") == rows("json", store, "t1099") == [(1, 0.0), (2, 0.0)]


@every_kind
def test_the_end_of_the_study_writes_everything(kind: str, store: Store) -> None:
    logger = a_logger(kind, store)
    log_all(logger, result(1))
    logger.on_experiment_end([])

    assert rows(kind, store, "train_00000") == [(1, 0.0)]


def test_an_object_is_put_again_only_when_it_has_grown_by_a_share() -> None:
    class Counting(MemoryStore):
        puts = 0

        def put(self, key: str, data: bytes, *rest: Any) -> str:
            self.puts += 1
            return super().put(key, data, *rest)

    store = Counting()
    logger = a_logger("json", store)
    for step in range(1, 3001):
        log_all(logger, result(step, x="y" * 300))
        logger.flush(durable=False)
    assert store.puts < 25
    logger.flush()
    assert len(rows("json", store, "train_00000")) == 3000


# ---------------------------------------------------------------------- disks that fail


class FullFor:
    """Refuses writes while it is told to, each after a part of the bytes."""

    def __init__(self) -> None:
        self.is_full = False

    def judge(self, step: Step) -> Verdict:
        if self.is_full and step.verb == "write":
            return Refuse(OSError(28, "No space left on device"), part=0.5)
        return ALLOW


@every_kind
def test_rows_wait_while_the_disk_is_full_and_are_whole_afterwards(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tap = FullFor()
    store = LocalStore(tmp_path, TappedDisk(PosixDisk(), tap))
    logger = a_logger(kind, store)
    log_all(logger, result(1))
    logger.flush()

    tap.is_full = True
    for step in (2, 3):
        log_all(logger, result(step))
        assert not logger.flush()
    assert not logger.flush(durable=False)
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1 and "wait in memory" in warnings[0]

    tap.is_full = False
    log_all(logger, result(4))
    assert logger.flush()
    assert rows(kind, store, "train_00000") == [(1, 0.0), (2, 0.0), (3, 0.0), (4, 0.0)]


@every_kind
def test_a_rewind_that_fails_is_made_up_for(kind: str, tmp_path: Path) -> None:
    tap = FullFor()
    store = LocalStore(tmp_path, TappedDisk(PosixDisk(), tap))
    logger = a_logger(kind, store)
    log_all(logger, result(1), result(2), result(3))
    logger.flush()

    tap.is_full = True
    logger.rewind(a_trial(), 1)
    logger.log_trial_end(a_trial())
    assert not logger.flush()
    assert len(rows(kind, store, "train_00000")) == 3
    tap.is_full = False
    assert logger.flush()

    assert rows(kind, store, "train_00000") == [(1, 0.0)]


class SyncFailsOnce:
    """Fails the first sync, after which the kernel may have dropped the bytes."""

    def __init__(self) -> None:
        self.left = 1

    def judge(self, step: Step) -> Verdict:
        if step.verb == "sync" and self.left and "tmp" not in os.path.basename(step.path):
            self.left -= 1
            return Refuse(OSError(5, "Input/output error"))
        return ALLOW


@every_kind
def test_a_file_whose_sync_has_failed_is_written_anew(kind: str, tmp_path: Path) -> None:
    store = LocalStore(tmp_path, TappedDisk(PosixDisk(), SyncFailsOnce()))
    logger = a_logger(kind, store)
    log_all(logger, result(1))
    assert not logger.flush()
    (before,) = (path.stat().st_ino for path in (tmp_path / "train_00000").iterdir())

    assert logger.flush()

    (after,) = (path.stat().st_ino for path in (tmp_path / "train_00000").iterdir())
    assert after != before
    assert rows(kind, store, "train_00000") == [(1, 0.0)]


@every_kind
def test_a_file_that_somebody_else_deleted_or_added_to_is_not_torn(kind: str, store: Store) -> None:
    ours, other = a_logger(kind, store), a_logger(kind, store)
    log_all(ours, result(1))
    ours.flush()
    log_all(other, result(2, 22.0))
    other.flush()

    log_all(ours, result(2), result(3))
    ours.flush()
    assert rows(kind, store, "train_00000") == [(1, 0.0), (2, 22.0), (3, 0.0)]

    store.delete_tree("train_00000")
    log_all(ours, result(4))
    ours.flush()
    assert (4, 0.0) in rows(kind, store, "train_00000")


@every_kind
def test_rows_may_come_while_another_thread_writes(kind: str, store: Store) -> None:
    logger, is_over = a_logger(kind, store), threading.Event()

    def write() -> None:
        while not is_over.is_set():
            logger.flush(durable=False)

    writer = threading.Thread(target=write)
    writer.start()
    expected: list[tuple[int, float]] = []
    for turn in range(150):
        step = len(expected) + 1 if turn % 10 else max(1, len(expected) - 2)
        log_all(logger, result(step, float(turn)))
        expected = [*expected[: step - 1], (step, float(turn))]
        if turn % 25 == 24:
            logger.rewind(a_trial(), step - 1)
            expected = expected[: step - 1]
    is_over.set()
    writer.join()
    assert logger.flush()

    assert rows(kind, store, "train_00000") == expected


def test_a_logger_that_was_never_attached_says_so() -> None:
    with pytest.raises(ValueError, match="does not know where the study is"):
        log_all(LOGGERS["json"](), result(1))

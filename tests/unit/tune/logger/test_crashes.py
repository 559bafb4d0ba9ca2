"""Loggers under power cuts and kills: what was durable stays, and reconciling makes it right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.testing.crashes import crash_states
from holdfast.testing.disk import SimDisk
from holdfast.testing.fates import Effort
from holdfast.tune.logger import FileLogger
from tests.unit.tune.logger.logging_files import a_logger, a_trial, every_kind, result, rows


class Study:
    """A study that keeps, as a journal would, the rows whose files are not known to be durable."""

    def __init__(self, kind: str, open_store: Callable[[], Any]) -> None:
        self.kind, self._open = kind, open_store
        self.logger: FileLogger = a_logger(kind, open_store())
        self.counted: list[tuple[int, float]] = []
        self.journal: list[dict[str, Any]] = []

    def report(self, step: int, loss: float) -> None:
        row = result(step, loss)
        self.journal = [entry for entry in self.journal if entry["training_iteration"] < step] + [
            row
        ]
        self.counted = [entry for entry in self.counted if entry[0] < step] + [(step, loss)]
        self.logger.log_trial_result(0, a_trial(), row)

    def rewind(self, step: int) -> None:
        self.journal = [entry for entry in self.journal if entry["training_iteration"] <= step]
        self.counted = [entry for entry in self.counted if entry[0] <= step]
        self.logger.rewind(a_trial(), step)

    def flush(self, *, durable: bool) -> None:
        assert self.logger.flush(durable=durable)
        if durable:
            self.journal = []

    def crash(self) -> None:
        self.logger = a_logger(self.kind, self._open())
        self.logger.reconcile(a_trial(), self.journal)

    def read(self) -> list[tuple[int, float]]:
        return rows(self.kind, self._open(), "train_00000")


moves = st.one_of(
    st.tuples(st.just("report"), st.just(0)),
    st.tuples(st.just("report"), st.just(0)),
    st.tuples(st.just("again"), st.integers(0, 4)),
    st.tuples(st.just("rewind"), st.integers(0, 4)),
    st.tuples(st.just("flush"), st.integers(0, 1)),
    st.tuples(st.just("crash"), st.just(0)),
)


@every_kind
@settings(max_examples=60)
@given(script=st.lists(moves, max_size=25))
def test_the_file_holds_exactly_what_counts_after_any_story(
    kind: str, script: list[tuple[str, int]]
) -> None:
    store = MemoryStore() if len(script) % 2 else LocalStore("/study", SimDisk("/"))
    study = Study(kind, lambda: store)
    for number, (move, value) in enumerate(script):
        last = study.counted[-1][0] if study.counted else 0
        match move:
            case "report":
                study.report(last + 1, float(number))
            case "again":
                study.report(max(1, last - value), float(number))
            case "rewind":
                study.rewind(max(0, last - value))
            case "flush":
                study.flush(durable=bool(value))
            case "crash":
                study.crash()
                assert study.read() == study.counted
    study.flush(durable=True)

    assert study.read() == study.counted


def record(kind: str) -> tuple[SimDisk, dict[str, tuple[Any, Any]]]:
    """Run a short study on a recording disk; the marks name what must be there from then on."""
    disk = SimDisk("/lab")
    study = Study(kind, lambda: LocalStore("/lab/study", disk))
    promised: dict[str, tuple[Any, Any]] = {"": ([], [])}

    def mark(label: str) -> None:
        promised[label] = (list(study.counted), list(study.journal))
        disk.mark(label)

    study.report(1, 1.0)
    study.flush(durable=False)
    study.report(2, 2.0)
    mark("begun")
    study.flush(durable=True)
    mark("two rows")
    study.report(3, 3.0)
    mark("journaled three")
    study.flush(durable=False)
    study.report(4, 4.0)
    mark("journaled four")
    study.flush(durable=False)
    study.flush(durable=True)
    mark("four rows")
    study.rewind(2)
    mark("rewound")
    study.report(3, 30.0)
    mark("journaled again")
    study.flush(durable=False)
    return disk, promised


@every_kind
def test_what_a_killed_process_wrote_is_made_durable_by_the_next(kind: str) -> None:
    disk = SimDisk("/lab")
    study = Study(kind, lambda: LocalStore("/lab/study", disk))
    study.report(1, 1.0)
    study.flush(durable=False)
    study.logger = a_logger(kind, LocalStore("/lab/study", disk))  # the first one was killed
    study.report(2, 2.0)
    study.flush(durable=True)
    disk.mark("durable")

    left = [left for point, left in crash_states(disk) if point.marks]

    assert left
    for disk_left in left:
        store = LocalStore("/lab/study", disk_left)
        assert rows(kind, store, "train_00000") == [(1, 1.0), (2, 2.0)]


@pytest.mark.slow
@every_kind
def test_no_power_cut_loses_what_was_durable_and_reconciling_makes_the_file_right(
    kind: str,
) -> None:
    disk, promised = record(kind)
    tried = 0
    for point, left in crash_states(disk, Effort(combinations_max=64, samples=8)):
        label = point.marks[-1] if point.marks else ""
        counted, journal = promised[label]
        study = Study(kind, partial(LocalStore, "/lab/study", left))
        study.counted, study.journal = list(counted), list(journal)

        study.logger.reconcile(a_trial(), study.journal)

        rows = study.read()
        if label in ("four rows", "rewound"):
            # The cut of a rewind may or may not have come to pass; nothing else may differ.
            assert rows in (promised["four rows"][0], promised["rewound"][0]), str(point)
        elif label:
            assert rows == counted, str(point)
        tried += 1
    assert tried > 30, "hardly any cut was tried"

"""Metric rows that were cut, changed or replaced in storage."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.control.metrics.reader import read_latest, read_metric_rows
from holdfast.control.metrics.writer import METRICS, MetricRows, segment_key
from holdfast.core.metric_history import flattened
from holdfast.errors import FormatTooNew
from holdfast.storage.base import Store
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.records import seal
from tests.metric_rows import segments, write_rows


@pytest.fixture(params=["disk", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "run") if request.param == "disk" else MemoryStore()


def test_a_segment_cut_anywhere_gives_the_rows_before_the_cut(store: Store) -> None:
    write_rows(store, 4)
    [key] = segments(store)
    whole = store.get(key).data
    ends = [0]
    for line in whole.splitlines(keepends=True):
        ends.append(ends[-1] + len(line))

    for size in range(len(whole)):
        cut = MemoryStore()
        cut.put(key, whole[:size])
        history = read_metric_rows(cut)
        # The first line is the header; a line without its newline is whole.
        count = sum(1 for end in ends[2:] if size >= end - 1)
        assert [row.step for row in history.rows] == list(range(1, count + 1))
        assert history.torn == (0 if size in ends else 1)
        assert history.damages == []


CHANGES: dict[str, Callable[[int], int]] = {
    "lowest bit": lambda byte: byte ^ 1,
    "highest bit": lambda byte: byte ^ 0x80,
    "newline": lambda byte: 10,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_byte_changed_anywhere_is_noticed_and_costs_one_row_at_most(
    store: Store, change: str
) -> None:
    write_rows(store, 5)
    [key] = segments(store)
    whole = store.get(key).data
    rows = read_metric_rows(store).rows

    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] = CHANGES[change](damaged[place])
        if damaged == whole:
            continue
        changed = MemoryStore()
        changed.put(key, bytes(damaged))
        history = read_metric_rows(changed)
        assert history.damages or history.torn, place
        assert len(history.rows) >= 4
        assert all(row in rows for row in history.rows)


def test_damage_is_told_with_its_place(store: Store) -> None:
    write_rows(store, 3)
    [key] = segments(store)
    header, first, second, third = store.get(key).data.splitlines(keepends=True)
    bad = first.replace(b"step", b"stop") + second.replace(b"step", b"stop")
    damaged = MemoryStore()
    damaged.put(key, header + bad + third)

    history = read_metric_rows(damaged)

    assert history.damages == [f"{key}, byte {len(header)}: {len(bad)} bytes are damaged"]
    assert [row.step for row in history.rows] == [3]


def test_what_is_no_segment_is_left_alone_and_garbage_is_no_crash() -> None:
    store = MemoryStore()
    write_rows(store, 1)
    store.put(f"{METRICS}/notes.txt", b"mine")
    store.put(segment_key(2, 0), os.urandom(5000))
    store.put(segment_key(3, 0), b"")
    store.put(segment_key(4, 0), seal({"step": "not a number"}) + b"\n" + seal({"x": 1}) + b"\n")

    history = read_metric_rows(store)

    assert [row.step for row in history.rows] == [1]
    assert len([what for what in history.damages if segment_key(4, 0) in what]) == 2


def test_rows_of_a_newer_version_are_refused(store: Store) -> None:
    store.put(segment_key(1, 0), seal({"format": 2, "segment": "000001-000000"}) + b"\n")

    with pytest.raises(FormatTooNew, match=r"metrics/000001-000000.jsonl: metric format 2"):
        read_metric_rows(store)


def test_segments_are_ordered_by_number_and_not_by_name() -> None:
    store = MemoryStore()
    for epoch, attempt, step in ((999_999, 1, 5), (1_000_000, 2, 1)):
        rows = MetricRows(store, epoch)
        rows.append(step, attempt, {}, 0.0)
        rows.close()

    last = read_latest(store).row

    assert last is not None and (last.attempt, last.step) == (2, 1)


def test_nested_metrics_are_flattened_in_the_order_they_were_reported() -> None:
    metrics = {"a": {"b": 1, "c": {"d": 2}}, "e": [3], "a/b": 4, "f": {}}

    assert list(flattened(metrics).items()) == [("a/c/d", 2), ("e", [3]), ("a/b", 4)]

"""Lives of runs, with rewinds and crashes of all kinds: the history has every step once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.control.metrics.reader import read_latest, read_metric_rows
from holdfast.control.metrics.writer import METRICS, MetricRows
from holdfast.core.checkpoint.record import Kept
from holdfast.core.metric_history import Begin, Row, flattened, history_of
from holdfast.storage.memory import MemoryStore

# ---------------------------------------------------------------------- the pure part


@dataclass
class Life:
    """A run as it is lived: what it reports, and what it knows of its own history."""

    rows: list[Row] = field(default_factory=list)
    begins: list[Begin] = field(default_factory=list)
    truth: dict[int, Row] = field(default_factory=dict)
    checkpoints: list[int] = field(default_factory=list)
    attempt: int = 0
    step: int = 0

    def begin(self, back: int) -> None:
        """Begin an attempt from the newest checkpoint, or from one so many before it."""
        del self.checkpoints[max(0, len(self.checkpoints) - back) :]
        self.attempt += 1
        self.step = self.checkpoints[-1] if self.checkpoints else 0
        self.truth = {step: row for step, row in self.truth.items() if step <= self.step}
        self.begins.append(Begin(self.attempt, self.step, 0.0))

    def report(self) -> None:
        self.step += 1
        row = Row(self.step, self.attempt, 0.0, {"nth": len(self.rows)})
        self.rows.append(row)
        self.truth[self.step] = row

    def save(self) -> None:
        if self.step and self.step not in self.checkpoints:
            self.checkpoints.append(self.step)


deeds = st.lists(st.sampled_from("rrrrsb2"), max_size=60)


def lived(acts: list[str]) -> Life:
    life = Life()
    life.begin(0)
    for act in acts:
        match act:
            case "r":
                life.report()
            case "s":
                life.save()
            case "b":
                life.begin(0)
            case _:
                life.begin(1)  # the newest checkpoint turned out to be damaged
    return life


@given(deeds, st.randoms(use_true_random=False))
def test_the_history_is_what_the_run_itself_would_tell_in_whatever_order_rows_are_read(
    acts: list[str], order: random.Random
) -> None:
    life = lived(acts)
    rows, begins = life.rows.copy(), life.begins.copy()
    order.shuffle(rows)
    order.shuffle(begins)

    assert history_of(rows, begins) == [life.truth[step] for step in sorted(life.truth)]


@given(deeds, st.sets(st.integers(0, 60)), st.sets(st.integers(0, 20)))
def test_whatever_rows_and_beginnings_are_lost_no_step_is_there_twice(
    acts: list[str], lost_rows: set[int], lost_begins: set[int]
) -> None:
    life = lived(acts)
    rows = [row for number, row in enumerate(life.rows) if number not in lost_rows]
    begins = [one for number, one in enumerate(life.begins) if number not in lost_begins]

    history = history_of(rows, begins)

    steps = [row.step for row in history]
    assert steps == sorted(set(steps))
    # Nothing is lost but what was, and nothing superseded stands where its successor is known.
    told = {row.step: row for row in history}
    for step, row in life.truth.items():
        if row in rows:
            assert told[step] == row


# ---------------------------------------------------------------------- with a store below


@dataclass
class Driven:
    """The same life with drivers that keep rows in a store, and with what reached the store.

    `at_rest` holds what counts, in the order of the run's life, not of its arrival.
    """

    store: MemoryStore = field(default_factory=MemoryStore)
    kept: dict[int, Kept] = field(default_factory=dict)
    at_rest: list[Row | Begin] = field(default_factory=list)
    unwritten: list[Row | Begin] = field(default_factory=list)
    sleeping: list[tuple[MetricRows, list[Row | Begin]]] = field(default_factory=list)
    life: Life = field(default_factory=Life)
    epoch: int = 0
    rows: MetricRows = field(init=False)

    def __post_init__(self) -> None:
        self.new_driver()

    def new_driver(self) -> None:
        self.epoch += 1
        self.rows = MetricRows(self.store, self.epoch, in_background=False)
        self.unwritten = []
        self.restart()

    def restart(self, back: int = 0) -> None:
        self.life.begin(back)
        begun = self.life.begins[-1]
        self.rows.begin(begun.begin, begun.after)
        self.unwritten.append(begun)

    def report(self) -> None:
        self.life.report()
        row = self.life.rows[-1]
        self.rows.append(row.step, row.attempt, row.metrics, row.time)
        self.unwritten.append(row)

    def save(self) -> None:
        self.life.save()
        if self.life.truth:
            row = self.life.truth[max(self.life.truth)]
            number = len(self.kept)
            self.kept[number] = Kept(
                number=number, directory="", epoch=self.epoch, attempt=row.attempt,
                step=row.step, metrics=row.metrics, created=row.time,
            )  # fmt: skip

    def write(self) -> None:
        assert self.rows.flush(0)
        self.at_rest += self.unwritten
        self.unwritten = []

    def crash(self) -> None:
        """The driver is gone, and what it had not written with it."""
        self.new_driver()

    def sleep(self) -> None:
        """The driver is replaced while it sleeps; it will write what it has when it wakes."""
        self.sleeping.append((self.rows, self.unwritten))
        self.new_driver()

    def wake(self) -> None:
        for rows, unwritten in self.sleeping:
            assert rows.flush(0)
            self.at_rest += unwritten
        self.sleeping = []


def model(at_rest: list[Row | Begin]) -> dict[int, Row]:
    """Go through a life from its beginning; each attempt first forgets what it will do again."""
    begun = {one.begin: one.after for one in at_rest if isinstance(one, Begin)}
    rows = [one for one in at_rest if isinstance(one, Row)]
    history: dict[int, Row] = {}
    for attempt in sorted({*begun, *(row.attempt for row in rows)}):
        mine = [row for row in rows if row.attempt == attempt]
        after = begun[attempt] if attempt in begun else min(row.step for row in mine) - 1
        history = {step: row for step, row in history.items() if step <= after}
        history |= {row.step: row for row in mine}
    return history


moves: st.SearchStrategy[Callable[[Driven], Any]] = st.one_of(
    st.just(Driven.report),
    st.just(Driven.report),
    st.just(Driven.report),
    st.just(Driven.save),
    st.just(Driven.write),
    st.just(Driven.restart),
    st.just(lambda driven: driven.restart(1)),
    st.just(Driven.crash),
    st.just(Driven.sleep),
    st.just(Driven.wake),
)


@given(st.lists(moves, max_size=60))
def test_what_is_read_is_what_was_written_with_every_step_once(
    acts: list[Callable[[Driven], Any]],
) -> None:
    driven = Driven()
    for act in acts:
        act(driven)

    history = read_metric_rows(driven.store)

    told = [(row.step, row.attempt, row.metrics) for row in history.rows]
    expected = sorted(model(driven.at_rest).items())
    assert told == [(step, row.attempt, row.metrics) for step, row in expected]
    assert (history.damages, history.torn) == ([], 0)
    assert read_latest(driven.store).row == (history.rows[-1] if history.rows else None)


@given(st.lists(moves, max_size=60))
def test_no_crash_loses_the_row_of_a_checkpoint_or_brings_back_one_that_was_undone(
    acts: list[Callable[[Driven], Any]],
) -> None:
    driven = Driven()
    for act in acts:
        act(driven)
    driven.wake()
    driven.write()

    rows = read_metric_rows(driven.store, driven.kept.values()).rows

    told = {row.step: row.metrics for row in rows}
    assert [row.step for row in rows] == sorted(told)
    assert set(driven.life.checkpoints) <= told.keys()
    for step, metrics in told.items():
        # The newest attempt's beginning is at rest, so nothing after it is of an earlier one.
        if step > driven.life.begins[-1].after:
            assert metrics == driven.life.truth[step].metrics
    for step in driven.life.checkpoints:
        assert told[step] == driven.life.truth[step].metrics
    assert read_latest(driven.store, driven.kept.values()).row == (rows[-1] if rows else None)


@given(
    st.integers(1, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 200), st.booleans()
)
def test_a_write_that_is_cut_off_costs_what_it_had_not_written(
    before: int, batch: int, whole: int, part: int, is_first: bool
) -> None:
    store = MemoryStore()
    rows = MetricRows(store, 1, in_background=False)
    if not is_first:
        for step in range(1, before + 1):
            rows.append(step, 1, {"s": step}, 0.0)
        rows.flush(0)
    first = 0 if is_first else before
    for step in range(first + 1, first + batch + 2):
        rows.append(step, 1, {"s": step}, 0.0)
    rows.flush(0)
    [key] = [entry.key for entry in store.entries(METRICS)]
    lines = store.get(key).data.splitlines(keepends=True)
    whole = min(whole, batch)
    keep = len(lines) - (batch + 1) + whole
    part = part % len(lines[keep])
    store.put(key, b"".join(lines[:keep]) + lines[keep][:part])

    history = read_metric_rows(store)

    # A line whose newline alone is missing is whole.
    came = whole + (part == len(lines[keep]) - 1)
    assert [row.step for row in history.rows] == list(range(1, first + came + 1))
    assert history.damages == []
    assert history.torn == (1 if part else 0)


# ---------------------------------------------------------------------- names of nested metrics

names = st.text("ab/", min_size=1, max_size=3)
nested = st.recursive(
    st.dictionaries(names, st.integers(), max_size=3),
    lambda inner: st.dictionaries(names, st.integers() | inner, max_size=3),
    max_leaves=8,
)


@given(nested)
def test_flattened_metrics_have_no_metrics_inside_and_keep_all_that_were_plain(
    metrics: dict[str, Any],
) -> None:
    flat = flattened(metrics)

    plain = {name: value for name, value in metrics.items() if not isinstance(value, dict)}
    assert not any(isinstance(value, dict) for value in flat.values())
    assert {name: flat[name] for name in plain} == plain

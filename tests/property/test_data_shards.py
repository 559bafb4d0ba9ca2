"""Sharding and resuming, against plain lists: random datasets, groups, batch sizes and cuts."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from holdfast import data
from holdfast.data.dataset import Dataset, shard
from holdfast.data.iterator import DataIterator
from holdfast.data.selection import within

Rows = list[int]


@dataclass(frozen=True)
class Given:
    """The rows of a dataset, and how to make it, as a script that is run again does.

    Shuffles without a seed draw another one each time, and only a state can undo that.
    """

    make: Callable[[], Dataset]
    rows: Rows

    def at_most(self, ranks: int) -> int:
        """Return how many ranks there can be: each needs a row."""
        return max(1, min(ranks, len(self.rows)))


def even(row: dict[str, Any]) -> bool:
    return bool(row["id"] % 2 == 0)


def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row, {"id": row["id"] + 1000}]


def same(batch: dict[str, Any]) -> dict[str, Any]:
    return batch


def plus_five(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"] + 5}


STEPS: dict[str, tuple[Callable[[Dataset], Dataset], Callable[[Rows], Rows]]] = {
    "filter": (lambda ds: ds.filter(even), lambda rows: [one for one in rows if one % 2 == 0]),
    "flat_map": (
        lambda ds: ds.flat_map(twice),
        lambda rows: [made for one in rows for made in (one, one + 1000)],
    ),
    "map": (lambda ds: ds.map(plus_five), lambda rows: [one + 5 for one in rows]),
    "map_batches": (lambda ds: ds.map_batches(same, batch_size=7), lambda rows: rows),
    "promised": (
        lambda ds: ds.map_batches(same, batch_size=7, udf_modifying_row_count=False),
        lambda rows: rows,
    ),
    "seeded": (lambda ds: ds.random_shuffle(seed=3), lambda rows: rows),
    "unseeded": (lambda ds: ds.random_shuffle(), lambda rows: rows),
    "union": (
        lambda ds: ds.union(data.from_items([{"id": 7000 + n} for n in range(5)])),
        lambda rows: [*rows, *range(7000, 7005)],
    ),
}


def made_of(count: int, steps: list[str]) -> Given:
    def make() -> Dataset:
        found = data.range(count)
        for step in steps:
            found = STEPS[step][0](found)
        return found

    rows = list(range(count))
    for step in steps:
        rows = STEPS[step][1](rows)
    return Given(make, rows)


datasets = st.builds(
    made_of, st.integers(0, 60), st.lists(st.sampled_from(sorted(STEPS)), max_size=3)
)


@dataclass(frozen=True)
class Segment:
    """One attempt: so many ranks take so many batches each, and are killed."""

    ranks: int
    batch_rows: int
    batches: int
    saved_by: int  # which rank's state is kept, of those that have one


segments = st.lists(
    st.builds(Segment, st.integers(1, 5), st.integers(1, 7), st.integers(0, 6), st.integers(0, 4)),
    max_size=4,
)
buffers = st.none() | st.integers(1, 20)


def taken_in_step(group: list[Iterator[Any]], batches: int | None) -> Iterator[Rows]:
    """Let every rank take a batch, again and again; yield what they got each time."""
    while batches is None or batches > 0:
        step = [next(rank, None) for rank in group]
        if all(batch is None for batch in step):
            return
        yield [int(one) for batch in step if batch is not None for one in batch["id"]]
        batches = None if batches is None else batches - 1


def loop(iterator: DataIterator, rows: int, buffer: int | None) -> Iterator[Any]:
    found = iterator.iter_batches(batch_size=rows, local_shuffle_buffer_size=buffer)
    return iter(found)


def consumed_over(
    found: Given, attempts: list[Segment], buffer: int | None, *, equal: bool
) -> tuple[Rows, int]:
    """Return what an epoch handed out over all attempts and one last, and the ranks of that."""
    state: dict[str, Any] | None = None
    consumed: Rows = []
    for one in [*attempts, None]:
        ranks = found.at_most(2 if one is None else one.ranks)
        dataset = found.make()
        iterators = [shard(dataset, ranks, rank, equal=equal) for rank in range(ranks)]
        for iterator in iterators:
            if state is not None:
                iterator.load_state_dict(json.loads(json.dumps(state)))
        group = [loop(iterator, one.batch_rows if one else 3, buffer) for iterator in iterators]
        steps = list(taken_in_step(group, one.batches if one else None))
        consumed += [row for step in steps for row in step]
        if one is None:
            return consumed, ranks
        states = [iterator.state_dict() for iterator in iterators]
        # A rank with a row less may be through with the epoch when others have one more batch.
        in_epoch = [each for each in states if each["epoch"] == 0]
        if not in_epoch or len(steps) < one.batches:
            return consumed, ranks
        state = in_epoch[one.saved_by % len(in_epoch)]
    raise AssertionError


wanted_rows = st.builds(range, st.integers(0, 30), st.integers(0, 30), st.integers(1, 5))


@given(wanted_rows, st.integers(0, 30), st.integers(0, 30))
def test_the_wanted_rows_of_a_stretch_are_those_of_it(wanted: range, low: int, more: int) -> None:
    here = [row - low for row in wanted if low <= row < low + more]

    found = within(wanted, low, low + more)

    assert list(found) == here
    assert found.start >= 0 and found.stop >= 0  # it is used as a slice, too
    assert within(np.array(wanted, dtype=int), low, low + more).tolist() == here


@given(datasets, segments, buffers)
def test_every_row_is_handed_out_once_in_an_epoch_however_often_it_is_resumed(
    found: Given, attempts: list[Segment], buffer: int | None
) -> None:
    consumed, _ = consumed_over(found, attempts, buffer, equal=False)

    assert Counter(consumed) == Counter(found.rows)


@given(datasets, segments, buffers)
def test_equal_parts_lose_less_than_a_round_and_repeat_nothing(
    found: Given, attempts: list[Segment], buffer: int | None
) -> None:
    consumed, ranks = consumed_over(found, attempts, buffer, equal=True)

    missing = Counter(found.rows) - Counter(consumed)
    assert not Counter(consumed) - Counter(found.rows)
    assert missing.total() < ranks


@given(datasets, st.integers(1, 6), st.integers(1, 9), buffers)
def test_equal_parts_have_the_same_number_of_rows(
    found: Given, ranks: int, rows: int, buffer: int | None
) -> None:
    dataset, ranks = found.make(), found.at_most(ranks)

    sizes = {
        sum(len(batch["id"]) for batch in loop(shard(dataset, ranks, rank), rows, buffer))
        for rank in range(ranks)
    }

    assert sizes == {len(found.rows) // ranks}


@given(datasets, st.integers(1, 6), st.integers(1, 6), st.integers(0, 40), st.integers(0, 5))
def test_a_resumed_loop_hands_out_what_the_uninterrupted_one_would_have(
    found: Given, ranks: int, rows: int, batches: int, rank: int
) -> None:
    """With as many ranks as before, batch by batch and epoch after epoch."""
    ranks = found.at_most(ranks)
    rank %= ranks
    dataset = found.make()
    whole = shard(dataset, ranks, rank)
    epochs = [[batch["id"].tolist() for batch in loop(whole, rows, None)] for _ in range(2)]
    killed = shard(dataset, ranks, rank)
    held = loop(killed, rows, None)  # not left: it is killed in it
    seen = [batch["id"].tolist() for batch in itertools.islice(held, batches)]

    again = shard(found.make(), ranks, rank)
    again.load_state_dict(json.loads(json.dumps(killed.state_dict())))
    rest = [batch["id"].tolist() for batch in loop(again, rows, None)]
    after = [batch["id"].tolist() for batch in loop(again, rows, None)]

    if batches <= len(epochs[0]):
        assert seen + rest == epochs[0]
        assert after == epochs[1]
    else:  # it had come to the end, so what was resumed is the next epoch
        assert [seen, rest] == epochs


@given(datasets, st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), buffers)
def test_the_steps_of_a_group_do_not_depend_on_how_many_share_them(
    found: Given, ranks: int, more: int, rows: int, buffer: int | None
) -> None:
    """The same rows make up a step, if ranks times rows of a batch are the same."""
    dataset = found.make().random_shuffle(seed=1)
    if len(found.rows) < ranks * more:
        ranks, more = 1, 1

    def steps(ranks: int, rows: int, mixed: int | None) -> list[Rows]:
        parts = [shard(dataset, ranks, rank, equal=False) for rank in range(ranks)]
        group = [loop(part, rows, mixed) for part in parts]
        return [sorted(step) for step in taken_in_step(group, None)]

    mixed_by_few = None if buffer is None else buffer * more

    assert steps(ranks, rows * more, mixed_by_few) == steps(ranks * more, rows, buffer)


@given(st.integers(0, 50), st.integers(0, 50), st.data())
def test_rows_that_are_cut_out_stay_out_in_every_epoch(
    count: int, seed: int, draw: st.DataObject
) -> None:
    dataset = data.range(count).random_shuffle(seed=seed)
    at = draw.draw(st.integers(0, count))
    first = dataset.limit(at).random_shuffle(seed=1).iterator()

    epochs = [[row["id"] for row in first.iter_rows()] for _ in range(3)]

    assert {tuple(sorted(rows)) for rows in epochs} == {
        tuple(sorted(row["id"] for row in dataset.take(at)))
    }

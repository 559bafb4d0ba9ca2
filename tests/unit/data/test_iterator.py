from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from holdfast import data
from holdfast.data.dataset import Dataset, shard
from holdfast.data.iterator import DataIterator
from holdfast.data.shuffle import Shuffle
from holdfast.errors import ConfigError


def epoch(iterator: DataIterator, size: int = 2, **arguments: Any) -> list[list[int]]:
    return [b["id"].tolist() for b in iterator.iter_batches(batch_size=size, **arguments)]


def after(iterator: DataIterator, batches: int, size: int = 2, **arguments: Any) -> dict[str, Any]:
    """Return the state while the last of so many batches is being worked on."""
    loop = iter(iterator.iter_batches(batch_size=size, **arguments))
    for _ in range(batches):
        next(loop)
    return iterator.state_dict()  # before the loop is left


def resumed(dataset: Dataset, state: dict[str, Any], ranks: int = 1, rank: int = 0) -> DataIterator:
    iterator = shard(dataset, ranks, rank)
    iterator.load_state_dict(json.loads(json.dumps(state)))
    return iterator


def test_rows_are_dealt_out_in_turn_and_a_remainder_is_nobodys() -> None:
    parts = data.range(8).streaming_split(3)

    assert [epoch(part) for part in parts] == [[[0, 3]], [[1, 4]], [[2, 5]]]


def test_unequal_parts_have_all_rows() -> None:
    parts = data.range(8).streaming_split(3, equal=False)

    assert [epoch(part) for part in parts] == [[[0, 3], [6]], [[1, 4], [7]], [[2, 5]]]


def test_a_rank_maps_no_rows_but_its_own() -> None:
    seen: list[int] = []

    def look(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(row["id"])
        return row

    def look_at_all(batch: dict[str, Any]) -> dict[str, Any]:
        seen.extend(batch["id"].tolist())
        return batch

    for dataset in (
        data.range(6).map(look),
        data.range(6).map_batches(look_at_all, udf_modifying_row_count=False),
        data.range(6).filter(lambda row: True).map(look),
        data.range(6).random_shuffle(seed=1).map(look),
    ):
        seen.clear()
        rows = [row["id"] for row in shard(dataset, 2, 1).iter_rows()]

        assert sorted(seen) == sorted(rows)
        assert len(rows) == 3


def test_every_rank_runs_what_may_change_the_number_of_rows() -> None:
    """Else no rank could know which rows are its own."""
    seen: list[int] = []

    def look(batch: dict[str, Any]) -> dict[str, Any]:
        seen.extend(batch["id"].tolist())
        return batch

    dataset = data.range(6).map_batches(look, batch_size=4)

    assert epoch(shard(dataset, 2, 1)) == [[1, 3], [5]]
    assert seen == list(range(6))


def test_the_epochs_of_a_shuffled_dataset_differ_and_can_be_had_again() -> None:
    dataset = data.range(40).random_shuffle(seed=1)
    iterator = dataset.iterator()

    epochs = [epoch(iterator, 40)[0] for _ in range(3)]

    assert all(sorted(rows) == list(range(40)) for rows in epochs)
    assert len({tuple(rows) for rows in epochs}) == 3
    assert epochs[0] == [row["id"] for row in dataset.take_all()]
    again = dataset.iterator()
    assert [epoch(again, 40)[0] for _ in range(3)] == epochs


def test_the_epochs_of_a_training_part_have_no_row_of_the_test_part() -> None:
    train, test = data.range(40).train_test_split(0.5, shuffle=True, seed=1)
    iterator = train.random_shuffle(seed=2).iterator()

    test_ids = {row["id"] for row in test.take_all()}

    for _ in range(4):
        assert test_ids.isdisjoint(row["id"] for row in iterator.iter_rows())


def test_the_batch_being_worked_on_counts_as_consumed() -> None:
    iterator = shard(data.range(12), 2, 0)

    positions = [iterator.state_dict()["position"] for _ in iterator.iter_batches(batch_size=2)]

    assert positions == [4, 8, 12]
    assert iterator.state_dict()["epoch"] == 1
    assert iterator.state_dict()["position"] == 0


def test_rows_are_counted_one_by_one() -> None:
    iterator = shard(data.range(12), 2, 0)
    loop = iter(iterator.iter_rows())

    assert [next(loop)["id"] for _ in range(3)] == [0, 2, 4]
    assert iterator.state_dict()["position"] == 6


@pytest.mark.parametrize("rank", [0, 1])
def test_the_state_of_any_rank_is_good_for_every_rank(rank: int) -> None:
    dataset = data.range(12).random_shuffle(seed=1)

    states = [after(shard(dataset, 2, rank), 2) for rank in range(2)]

    assert states[0] == states[1]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_with_a_row_less_knows_that_others_had_it(rank: int) -> None:
    """Of three rows, rank 0 has two in its batch and rank 1 has one: all three are consumed."""
    iterator = shard(data.range(3), 2, rank, equal=False)

    assert after(iterator, 1)["position"] == 3


def test_a_group_of_another_size_goes_on_in_mid_epoch() -> None:
    state = after(shard(data.range(12), 2, 0), 1)

    parts = [resumed(data.range(12), state, 4, rank) for rank in range(4)]

    assert [epoch(part) for part in parts] == [[[4, 8]], [[5, 9]], [[6, 10]], [[7, 11]]]
    assert [epoch(part, 3) for part in parts] == [[[n, n + 4, n + 8]] for n in range(4)]


def test_a_state_brings_its_seed_along() -> None:
    """A script that is run again draws another seed, and must still go on in the old order."""
    dataset = data.range(20).random_shuffle()
    whole = dataset.iterator()
    epochs = [epoch(whole), epoch(whole)]
    state = after(dataset.iterator(), 3)

    again = resumed(data.range(20).random_shuffle(), state)

    assert [epoch(again), epoch(again)] == [epochs[0][3:], epochs[1]]


def test_a_loop_that_was_left_is_followed_by_a_whole_epoch() -> None:
    iterator = data.range(6).iterator()

    for expected in (1, 2, 3):
        first = next(iter(iterator.iter_batches(batch_size=4)))

        assert first["id"].tolist() == [0, 1, 2, 3]
        assert iterator.state_dict()["epoch"] == expected


def test_a_state_taken_at_the_last_batch_leaves_nothing_of_its_epoch() -> None:
    state = after(data.range(4).iterator(), 2)

    again = resumed(data.range(4), state)

    assert (state["epoch"], state["position"]) == (0, 4)
    assert epoch(again) == []
    assert epoch(again) == [[0, 1], [2, 3]]


def test_a_state_taken_between_epochs_begins_the_next_one() -> None:
    iterator = data.range(10).random_shuffle(seed=1).iterator()
    epoch(iterator)
    state = iterator.state_dict()
    second = epoch(iterator)

    assert (state["epoch"], state["position"]) == (1, 0)
    assert epoch(resumed(data.range(10).random_shuffle(seed=1), state)) == second


def test_batches_may_have_another_size_after_a_resume() -> None:
    state = after(shard(data.range(13), 2, 1), 2)

    again = resumed(data.range(13), state, 2, 1)

    assert epoch(again, 1) == [[9], [11]]


def test_a_loop_that_was_made_and_not_run_is_no_epoch() -> None:
    iterator = data.range(4).iterator()

    iterator.iter_batches()
    iter(iterator.iter_batches())

    assert iterator.state_dict()["epoch"] == 0
    assert epoch(iterator) == [[0, 1], [2, 3]]


def test_a_loop_whose_step_raised_has_not_consumed_what_it_did_not_get() -> None:
    def fails_once(batch: dict[str, Any]) -> Any:
        if batch["id"][0] == 4:
            raise RuntimeError("collate")
        return batch

    iterator = data.range(8).iterator()
    with pytest.raises(RuntimeError, match="collate"):
        list(iterator.iter_torch_batches(batch_size=2, collate_fn=fails_once))

    assert iterator.state_dict()["position"] == 4


def test_a_local_shuffle_mixes_among_ranks_and_loses_nothing() -> None:
    dataset = data.range(96)
    arguments = {"size": 4, "local_shuffle_buffer_size": 8}

    parts = [shard(dataset, 3, rank) for rank in range(3)]
    epochs = [[np.ravel(epoch(part, **arguments)).tolist() for part in parts] for _ in range(2)]

    for dealt in epochs:
        assert sorted(itertools.chain.from_iterable(dealt)) == list(range(96))
        assert {row // 24 for part in dealt for row in part[:8]} == {0}
    assert epochs[0] != epochs[1]


def test_how_many_windows_are_planned_at_once_does_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dealt() -> list[list[list[int]]]:
        parts = data.range(100).streaming_split(5)
        return [epoch(part, local_shuffle_buffer_size=1) for part in parts]

    at_once = dealt()
    monkeypatch.setattr("holdfast.data.shuffle.PASS_ROWS", 15)

    assert dealt() == at_once


def test_rows_far_apart_are_found_in_a_mixed_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.data.shuffle.PASS_ROWS", 15)
    plan = Shuffle((data.range(100).plan,), seed=1, window=5)

    every = [row for block in plan.blocks(range(100), 0) for row in block["id"]]
    some = [row for block in plan.blocks(np.array([2, 3, 71, 99]), 0) for row in block["id"]]

    assert some == [every[2], every[3], every[71], every[99]]


def test_a_rank_with_a_seed_of_its_own_does_not_take_rows_of_others() -> None:
    parts = [
        epoch(
            shard(data.range(40), 2, rank),
            20,
            local_shuffle_buffer_size=10,
            local_shuffle_seed=rank,
        )
        for rank in range(2)
    ]

    assert sorted(itertools.chain.from_iterable(itertools.chain.from_iterable(parts))) == list(
        range(40)
    )


def test_an_epoch_is_resumed_in_the_local_shuffle_it_began_with() -> None:
    whole = epoch(data.range(20).iterator(), local_shuffle_buffer_size=7, local_shuffle_seed=5)
    state = after(
        data.range(20).iterator(), 3, local_shuffle_buffer_size=7, local_shuffle_seed=np.int64(5)
    )

    again = resumed(data.range(20), state)

    assert epoch(again, local_shuffle_buffer_size=4) == whole[3:]
    assert epoch(again) == np.arange(20).reshape(10, 2).tolist()


def test_the_rows_of_a_rank_can_be_had_in_memory() -> None:
    iterator = shard(data.range(8), 3, 1)

    dataset = iterator.materialize()

    assert [row["id"] for row in dataset.take_all()] == [1, 4]
    assert iterator.state_dict()["epoch"] == 0
    assert iterator.columns() == ["id"]


@pytest.mark.parametrize(
    ("ranks", "rank", "rule"),
    [
        (0, 0, "world_size=0: less than 1"),
        (2, 2, "rank=2: not less than world_size=2"),
        (2, -1, "rank=-1: less than 0"),
        (2.0, 0, "world_size=2.0: not a whole number"),
    ],
)
def test_a_rank_has_its_place_in_a_group(ranks: Any, rank: Any, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        shard(data.range(3), ranks, rank)


STATE = data.range(3).random_shuffle(seed=1).iterator().state_dict()


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        ([], "a state must come from state_dict.., not be a list"),
        ({}, "a state of version None: this Holdfast reads version 1"),
        (STATE | {"version": 2}, "a state of version 2: this Holdfast reads version 1"),
        (STATE | {"epoch": -1}, "this is not the state of an iterator: epoch is -1"),
        (STATE | {"position": "3"}, "this is not the state of an iterator: position is '3'"),
        (STATE | {"position": True}, "this is not the state of an iterator: position is True"),
        (STATE | {"seeds": None}, "this is not the state of an iterator: seeds is None"),
        (
            STATE | {"local_shuffle": [0, 1]},
            r"not the state of an iterator: local_shuffle is \[0, 1\]",
        ),
        (STATE | {"seeds": [1, 2]}, "a dataset with 2 shuffles, this one has 1"),
        (STATE | {"rows": 4}, "to a dataset of 4 rows, this one has 3: the rows consumed so far"),
        (STATE | {"rows": None}, "to a dataset of an unknown number of rows, this one has 3"),
    ],
    ids=lambda value: None if isinstance(value, str) else "state",
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(state: Any, rule: str) -> None:
    iterator = data.range(3).random_shuffle(seed=7).iterator()
    before = iterator.state_dict()

    with pytest.raises(ConfigError, match=rule):
        iterator.load_state_dict(state)

    assert iterator.state_dict() == before


def test_an_iterator_says_where_it_is() -> None:
    dataset = data.range(10)
    dataset.set_name("train")
    iterator = shard(dataset, 2, 1)
    loop = iter(iterator.iter_batches(batch_size=4))
    next(loop)

    assert repr(iterator) == "DataIterator('train', rank 1 of 2, epoch 0, position 8)"

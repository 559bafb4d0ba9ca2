"""Loops that are left early, that fail, and that are begun inside each other."""

from __future__ import annotations

import itertools
import json
import logging
from typing import Any

import cloudpickle
import pytest

from holdfast import data
from holdfast.data.dataset import Dataset, shard
from holdfast.data.iterator import DataIterator
from holdfast.errors import ConfigError


def resumed(dataset: Dataset, state: dict[str, Any], ranks: int = 1, rank: int = 0) -> DataIterator:
    iterator = shard(dataset, ranks, rank)
    iterator.load_state_dict(json.loads(json.dumps(state)))
    return iterator


def batches(iterator: DataIterator, most: int | None = None) -> list[list[int]]:
    loop = itertools.islice(iterator.iter_batches(batch_size=2), most)
    return [batch["id"].tolist() for batch in loop]


def test_after_a_loop_was_left_a_resumed_run_does_what_the_undisturbed_one_does() -> None:
    dataset = data.range(10).random_shuffle(seed=1)
    undisturbed = dataset.iterator()
    batches(undisturbed, 2)
    state = undisturbed.state_dict()

    assert batches(resumed(dataset, state)) == batches(undisturbed)
    assert (state["epoch"], state["position"]) == (1, 0)


@pytest.mark.parametrize("way", ["break", "raise", "del"])
def test_however_a_loop_is_left_its_epoch_is_over(way: str) -> None:
    iterator = data.range(6).iterator()
    if way == "break":
        for _ in iterator.iter_rows():
            break
    elif way == "raise":
        with pytest.raises(ZeroDivisionError):
            sum(row["id"] / 0 for row in iterator.iter_rows())
    else:
        loop = iter(iterator.iter_rows())
        next(loop)
        del loop

    assert iterator.state_dict() | {"epoch": 1, "position": 0} == iterator.state_dict()


def test_a_loop_that_is_held_is_in_the_middle() -> None:
    iterator = data.range(6).iterator()
    loop = iter(iterator.iter_rows())
    next(loop)

    assert iterator.state_dict()["position"] == 1
    assert next(loop) == {"id": 1}


def test_after_a_step_has_failed_the_next_loop_goes_on_live_and_resumed() -> None:
    broken = [True]

    def fails_once(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["id"][0] == 4 and broken:
            broken.clear()
            raise OSError("the disk")
        return batch

    iterator = data.range(8).iterator()
    with pytest.raises(OSError, match="the disk"):
        list(iterator.iter_torch_batches(batch_size=2, collate_fn=fails_once))
    again = resumed(data.range(8), iterator.state_dict())

    assert batches(iterator) == batches(again) == [[4, 5], [6, 7]]


def test_rows_that_a_loop_leaves_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    dataset = data.range(10)
    dataset.set_name("train")
    first, second = shard(dataset, 2, 0), shard(dataset, 2, 1)

    with caplog.at_level(logging.WARNING, "holdfast"):
        for _ in range(3):
            batches(first, 1)
            batches(second, 1)

    [warning] = caplog.messages
    assert warning == (
        "the loop over dataset 'train' was left with 6 of 10 rows unread: epoch 0 ends there, and"
        " the next loop is epoch 1"
    )


def test_a_loop_that_is_left_at_its_very_end_leaves_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    iterator = shard(data.range(4), 2, 0)

    with caplog.at_level(logging.WARNING, "holdfast"):
        assert batches(iterator, 1) == [[0, 2]]

    assert caplog.messages == []
    assert iterator.state_dict()["epoch"] == 1


def test_a_loop_inside_a_loop_over_the_same_shard_is_refused() -> None:
    dataset = data.range(10)
    dataset.set_name("train")
    iterator = dataset.iterator()

    with pytest.raises(ConfigError, match="'train' is being looped over already") as caught:
        [list(iterator.iter_rows()) for _ in iterator.iter_batches(batch_size=2)]

    assert "materialize()" in str(caught.value)


def test_two_loops_side_by_side_are_refused() -> None:
    iterator = data.range(10).iterator()

    with pytest.raises(ConfigError, match="is being looped over already"):
        list(zip(iterator.iter_rows(), iterator.iter_rows(), strict=True))


def test_a_state_is_not_loaded_into_a_loop() -> None:
    iterator = data.range(10).iterator()
    state = iterator.state_dict()

    loop = iter(iterator.iter_rows())
    next(loop)
    with pytest.raises(ConfigError, match="is being looped over already"):
        iterator.load_state_dict(state)


def test_looking_at_a_shard_in_its_loop_is_no_loop() -> None:
    iterator = data.range(4).iterator()

    for _ in iterator.iter_batches(batch_size=2):
        assert iterator.columns() == ["id"]
        assert iterator.materialize().count() == 4

    assert iterator.state_dict()["epoch"] == 1


def test_what_travels_out_of_a_loop_can_be_looped_over_and_goes_on_there() -> None:
    iterator = data.range(6).iterator()
    loop = iter(iterator.iter_batches(batch_size=2))
    next(loop)

    back = cloudpickle.loads(cloudpickle.dumps(iterator))

    assert batches(back) == [[2, 3], [4, 5]]

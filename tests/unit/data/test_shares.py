"""Rows that do not divide evenly among ranks: what is left out, logged, and refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from holdfast import data
from holdfast.data import DataConfig
from holdfast.data.config import check_shares, shards
from holdfast.data.dataset import Dataset, shard
from holdfast.data.iterator import DataIterator
from holdfast.errors import ConfigError


def ids(iterator: DataIterator) -> list[int]:
    return [row["id"] for row in iterator.iter_rows()]


def named(dataset: Dataset) -> Dataset:
    dataset.set_name("train")
    return dataset


def filtered(rows: int) -> Dataset:
    """Return a dataset of so many rows, which only reading it tells."""
    return data.range(rows).filter(lambda row: True)


@pytest.mark.parametrize("make", [data.range, filtered])
def test_rows_that_no_rank_gets_are_told_once(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    parts = named(make(10)).streaming_split(4)

    with caplog.at_level(logging.WARNING, "holdfast"):
        dealt = [[ids(part) for _ in range(2)] for part in parts]

    assert dealt == [[[rank, rank + 4]] * 2 for rank in range(4)]
    [warning] = caplog.messages
    assert warning == (
        "dataset 'train': 2 of 10 rows are in no rank's share of an epoch, so that all 4 ranks have"
        " the same number; with equal=False (in DataConfig, or in streaming_split) they are used"
        " too"
    )


def test_nothing_is_said_where_nothing_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"):
        for part in (*data.range(8).streaming_split(4), *filtered(8).streaming_split(4)):
            ids(part)
        for part in data.range(10).streaming_split(4, equal=False):
            ids(part)

    assert caplog.messages == []


def test_rows_that_another_number_of_ranks_leaves_out_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = shard(data.range(12), 2, 0)
    loop = iter(first.iter_batches(batch_size=1))
    next(loop)
    again = shard(data.range(12), 4, 0)
    again.load_state_dict(first.state_dict())

    with caplog.at_level(logging.WARNING, "holdfast"):
        assert ids(again) == [2, 6]
        assert ids(again) == [0, 4, 8]

    [warning] = caplog.messages
    assert "2 of the 10 rows that were left of epoch 0 are in no rank's share" in warning


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_rank_without_a_row_is_refused(rows: int, *, equal: bool) -> None:
    with pytest.raises(ConfigError, match=f"{rows} rows for 4 ranks: each needs at least one"):
        data.range(rows).streaming_split(4, equal=equal)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_rank_without_a_row_is_refused_when_it_is_known(rows: int) -> None:
    parts = filtered(rows).streaming_split(4)

    for part in parts:
        with pytest.raises(ConfigError, match=f"{rows} rows for 4 ranks: each needs at least one"):
            ids(part)


def test_of_unequal_shares_the_rank_without_a_row_refuses() -> None:
    parts = filtered(3).streaming_split(4, equal=False)

    assert [ids(part) for part in parts[:3]] == [[0], [1], [2]]
    with pytest.raises(ConfigError, match="no row for rank 3 of 4: each needs at least one"):
        ids(parts[3])


def test_what_is_left_of_an_epoch_need_not_go_round() -> None:
    """The next epoch will; and to refuse would make the run impossible to resume."""
    first = data.range(5).iterator()
    loop = iter(first.iter_batches(batch_size=3))
    next(loop)
    parts = [shard(data.range(5), 3, rank, equal=False) for rank in range(3)]
    for part in parts:
        part.load_state_dict(first.state_dict())

    assert [ids(part) for part in parts] == [[3], [4], []]
    assert [ids(part) for part in parts] == [[0, 3], [1, 4], [2]]


def test_a_single_rank_may_have_nothing() -> None:
    assert ids(data.range(0).iterator()) == ids(filtered(0).iterator()) == []


def test_a_trainer_deals_out_all_rows_if_told_so() -> None:
    config = DataConfig(equal=False)

    dealt = [ids(shards({"train": data.range(5)}, config, 2, rank)["train"]) for rank in range(2)]

    assert dealt == [[0, 2, 4], [1, 3]]


@pytest.mark.parametrize("equal", ["no", 0, None])
def test_equal_is_true_or_false(equal: Any) -> None:
    with pytest.raises(ConfigError, match="must be True or False"):
        DataConfig(equal=equal)
    with pytest.raises(ConfigError, match="must be True or False"):
        data.range(4).streaming_split(2, equal=equal)


def test_shares_are_checked_before_anything_starts() -> None:
    datasets: Any = {"train": data.range(8), "valid": data.range(3), "made": lambda: data.range(1)}

    with pytest.raises(ConfigError, match=r"datasets\['valid'\] has 3 rows for 4 ranks") as caught:
        check_shares(datasets, None, 4)

    assert 'DataConfig(datasets_to_split=["train", "made"])' in str(caught.value)
    check_shares(datasets, DataConfig(datasets_to_split=["train"]), 4)
    check_shares(datasets, None, 1)

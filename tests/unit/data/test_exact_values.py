"""Values that come out of a dataset as they went in."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast import data

LARGE = 2**53 + 1


def tensors() -> pa.Table:
    kind = pa.fixed_shape_tensor(pa.int64(), (2, 3))
    flat = pa.FixedSizeListArray.from_arrays(pa.array(range(12)), 6)
    return pa.table({"x": pa.ExtensionArray.from_storage(kind, flat), "n": [1, 2]})


@pytest.mark.parametrize(
    "step",
    [lambda d: d, lambda d: d.map(lambda row: row), lambda d: d.filter(len)],
    ids=["rows", "map", "filter"],
)
def test_tensors_of_a_fixed_shape_keep_it_in_rows(step: Any) -> None:
    rows = step(data.from_arrow(tensors())).take_all()

    assert [row["x"].shape for row in rows] == [(2, 3), (2, 3)]
    assert rows[1]["x"].tolist() == [[6, 7, 8], [9, 10, 11]]
    assert [row["n"] for row in rows] == [1, 2]


def test_a_tensor_in_a_row_may_be_written_to() -> None:
    def clear(row: dict[str, Any]) -> dict[str, Any]:
        row["x"][:] = 0
        return row

    dataset = data.from_arrow(tensors())

    assert dataset.map(clear).take_all()[1]["x"].sum() == 0
    assert dataset.take_all()[1]["x"].sum() == 51


@pytest.mark.parametrize(
    "dataset",
    [
        data.from_arrow(pa.table({"id": pa.array([LARGE, None])})),
        data.from_items([{"id": LARGE}, {"id": None}]),
    ],
    ids=["arrow", "items"],
)
def test_a_large_number_beside_a_missing_one_loses_no_digit(dataset: Any) -> None:
    [batch] = dataset.iter_batches()

    assert batch["id"].tolist() == [LARGE, None]


def test_small_numbers_beside_a_missing_one_are_floats() -> None:
    [batch] = data.from_arrow(pa.table({"id": pa.array([3, None])})).iter_batches()

    assert batch["id"].dtype == float
    assert batch["id"][0] == 3.0 and np.isnan(batch["id"][1])


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ([1, 2], ["a", "b"], [1, 2, "a", "b"]),
        ([True], [2], [True, 2]),
        ([LARGE], [0.5], [LARGE, 0.5]),
        ([2**63], [-1], [2**63, -1]),
        ([1], [0.5], [1.0, 0.5]),
        (["a"], ["bcd"], ["a", "bcd"]),
    ],
    ids=str,
)
def test_batches_of_different_types_are_joined_without_a_change(
    first: list[Any], second: list[Any], joined: list[Any]
) -> None:
    dataset = data.from_numpy(np.array(first), column="x").union(
        data.from_numpy(np.array(second), column="x")
    )

    [batch] = dataset.iter_batches(batch_size=10)

    assert batch["x"].tolist() == joined
    assert [type(value) for value in batch["x"].tolist()] == [type(value) for value in joined]


SPLIT = """
import json
from holdfast import data
train, test = data.range(100).train_test_split(0.3, shuffle=True)
print(json.dumps([[row["id"] for row in part.take_all()] for part in (train, test)]))
"""


def test_a_split_without_a_seed_is_the_same_when_the_script_is_run_again() -> None:
    runs = [
        json.loads(
            subprocess.run([sys.executable, "-c", SPLIT], capture_output=True, check=True).stdout
        )
        for _ in range(2)
    ]

    assert runs[0] == runs[1]
    assert sorted(runs[0][0] + runs[0][1]) == list(range(100))
    assert runs[0][1] != list(range(70, 100))


def test_a_split_without_a_seed_is_another_for_other_data() -> None:
    tests = [
        {row["id"] for row in data.range(rows).train_test_split(10, shuffle=True)[1].take_all()}
        for rows in (100, 101)
    ]

    assert tests[0] != tests[1]


def test_the_training_part_of_a_mixed_split_is_in_another_order_each_epoch() -> None:
    train, test = data.range(40).train_test_split(0.5, shuffle=True, seed=1)
    iterator = train.iterator()
    epochs = [[row["id"] for row in iterator.iter_rows()] for _ in range(3)]

    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert len({tuple(sorted(epoch)) for epoch in epochs}) == 1
    assert set(epochs[0]).isdisjoint(row["id"] for row in test.take_all())


def test_without_shuffle_a_split_keeps_the_order() -> None:
    train, _ = data.range(10).train_test_split(0.5)
    iterator = train.iterator()

    assert [[row["id"] for row in iterator.iter_rows()] for _ in range(2)] == [[0, 1, 2, 3, 4]] * 2

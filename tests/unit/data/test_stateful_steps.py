"""Steps that keep state, or that write to their input."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pandas as pd
import pytest

from holdfast import data
from holdfast.data.dataset import Dataset, shard
from holdfast.errors import ConfigError


def ids(iterator: Any) -> list[int]:
    return [row["id"] for row in iterator.iter_rows()]


class Unseen:
    """Whether a row's number has not come before."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def __call__(self, row: dict[str, Any]) -> bool:
        is_new = row["id"] % 6 not in self.seen
        self.seen.add(row["id"] % 6)
        return is_new

    def of(self, row: dict[str, Any]) -> bool:
        return self(row)


CLASS: Any = Unseen  # steps take classes too, as Ray's do


@pytest.mark.parametrize(
    "dataset",
    [
        data.range(12).filter(CLASS),
        data.range(12).filter(Unseen()),
        data.range(12).filter(Unseen().of),
        data.range(12).flat_map(lambda row: [row]).filter(CLASS).map(lambda row: row),
    ],
    ids=["class", "instance", "method", "steps"],
)
def test_what_a_step_remembers_it_forgets_with_the_pass(dataset: Dataset) -> None:
    iterator = dataset.iterator()

    assert dataset.count() == 6
    assert iterator.schema() == iterator.schema()
    assert [ids(iterator) for _ in range(3)] == [[0, 1, 2, 3, 4, 5]] * 3
    assert len(dataset.take_all()) == len(dataset.materialize().take_all()) == 6


def test_a_rank_that_has_looked_at_the_schema_has_the_rows_it_would_have_had() -> None:
    dataset = data.range(12).filter(Unseen())
    parts = [shard(dataset, 2, rank) for rank in range(2)]

    parts[0].schema()

    assert [ids(part) for part in parts] == [[0, 2, 4], [1, 3, 5]]


def test_what_a_step_remembers_is_there_again_after_a_resume() -> None:
    dataset = data.range(12).filter(CLASS)
    iterator = dataset.iterator()
    loop = iter(iterator.iter_batches(batch_size=4))
    next(loop)
    again = dataset.iterator()
    again.load_state_dict(iterator.state_dict())

    assert ids(again) == [4, 5]


def test_a_class_is_made_once_for_a_pass_however_the_pass_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    class Heavy:
        def __init__(self) -> None:
            made.append(1)

        def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            return row

    monkeypatch.setattr("holdfast.data.shuffle.PASS_ROWS", 5)
    step: Any = Heavy
    iterator = data.range(40).map(step).iterator()

    rows = [
        int(number)
        for batch in iterator.iter_batches(batch_size=4, local_shuffle_buffer_size=3)
        for number in batch["id"]
    ]

    assert sorted(rows) == list(range(40))
    assert len(made) == 1


def test_an_instance_that_cannot_be_copied_is_used_as_it_is() -> None:
    class Locked:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            return row

    assert data.range(3).map(Locked()).count() == 3
    assert len(data.range(3).map(Locked()).take_all()) == 3


def test_a_function_that_remembers_is_refused_when_it_shows() -> None:
    seen: set[int] = set()

    def unseen(row: dict[str, Any]) -> bool:
        is_new = row["id"] not in seen
        seen.add(row["id"])
        return is_new

    iterator = data.range(6).filter(unseen).iterator()

    assert ids(iterator) == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ConfigError, match="6 rows in epoch 0 and 0 in epoch 1") as caught:
        ids(iterator)
    assert "a class" in str(caught.value)
    assert "filter(unseen)" in str(caught.value)


def test_batches_of_another_order_may_make_another_number_of_rows() -> None:
    def first_and_rest(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"][: 1 + batch["id"][0] % 3]}

    dataset = data.range(30).random_shuffle(seed=1).map_batches(first_and_rest, batch_size=5)
    iterator = dataset.iterator()

    assert len({len(ids(iterator)) for _ in range(4)}) > 1


# ---------------------------------------------------------------------- writing in place

TABLE = np.arange(4.0)
NAMES = ["a"]


def own_table(batch: dict[str, Any]) -> dict[str, Any]:
    return {"id": TABLE}


def own_frame(batch: dict[str, Any]) -> pd.DataFrame:
    return FRAME


FRAME = pd.DataFrame({"id": np.arange(4.0)})


def own_row(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": TABLE, "names": NAMES}


def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row, row]


def add_one(row: dict[str, Any]) -> dict[str, Any]:
    row["id"] += 1
    if "names" in row:
        row["names"].append("b")
    return row


def add_one_to_all(batch: dict[str, Any]) -> dict[str, Any]:
    batch["id"] += 1
    return batch


@pytest.mark.parametrize(
    "dataset",
    [
        data.range(4).map_batches(own_table).map_batches(add_one_to_all),
        data.range(4).map_batches(own_table).map(add_one),
        data.range(4)
        .map_batches(own_table, udf_modifying_row_count=False)
        .map_batches(add_one_to_all),
        data.range(4).map_batches(own_frame).map_batches(add_one_to_all, batch_format="pandas"),
        data.range(1).map(own_row).map(add_one),
        data.range(1).flat_map(lambda row: [own_row(row)]).map(add_one),
        data.from_items([{"id": np.zeros(2)}]).flat_map(twice).map(add_one),
    ],
    ids=["batches", "rows of batches", "promised", "pandas", "map", "flat_map", "twice"],
)
def test_writing_to_rows_changes_nothing_that_is_read_again(dataset: Dataset) -> None:
    before = copy.deepcopy((TABLE, NAMES, FRAME["id"].tolist()))
    iterator = dataset.iterator()

    epochs = [repr(list(iterator.iter_rows())) for _ in range(3)]

    assert len(set(epochs)) == 1
    assert repr((TABLE, NAMES, FRAME["id"].tolist())) == repr(before)
    rows = list(iterator.iter_rows())
    assert all(repr(row) == repr(rows[0]) for row in rows if "names" in row)


def test_rows_that_a_step_gives_twice_are_two() -> None:
    dataset = data.from_items([{"id": np.zeros(1)}]).flat_map(twice).map(add_one)

    assert [float(row["id"][0]) for row in dataset.take_all()] == [1.0, 1.0]


def test_what_a_loop_writes_to_its_batches_is_seen_by_nobody() -> None:
    iterator = data.range(4).map_batches(own_table).iterator()
    for batch in iterator.iter_batches(batch_size=4):
        batch["id"][:] = 99

    assert TABLE.tolist() == [0.0, 1.0, 2.0, 3.0]

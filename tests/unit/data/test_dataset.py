from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from holdfast import data
from holdfast.data.dataset import Dataset
from holdfast.errors import ConfigError


def ids(dataset: Dataset) -> list[int]:
    return [row["id"] for row in dataset.take_all()]


def test_nothing_runs_before_rows_are_wanted_and_no_more_than_is_wanted() -> None:
    seen: list[int] = []

    def look(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(row["id"])
        return row

    dataset = data.range(10_000).map(look)
    assert seen == []

    assert dataset.take(3) == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert seen == [0, 1, 2]
    assert dataset.count() == 10_000
    assert seen == [0, 1, 2]


def test_map_makes_a_row_of_each_row() -> None:
    dataset = data.range(3).map(
        lambda row, by, plus: {"x": row["id"] * by + plus}, fn_args=[2], fn_kwargs={"plus": 1}
    )

    assert dataset.take_all() == [{"x": 1}, {"x": 3}, {"x": 5}]


@pytest.mark.parametrize(("made", "kind"), [(None, "NoneType"), (3, "int"), ([1], "list")])
def test_map_must_make_rows(made: object, kind: str) -> None:
    def wrong(row: dict[str, Any]) -> Any:
        return made

    with pytest.raises(ConfigError, match=rf"map\(wrong\) returned {kind}: a row is a dict"):
        data.range(1).map(wrong).take_all()


def test_flat_map_makes_rows_of_each_row() -> None:
    dataset = data.range(4).flat_map(lambda row: [{"id": row["id"]}] * row["id"])

    assert ids(dataset) == [1, 2, 2, 3, 3, 3]
    assert dataset.count() == 6


def test_filter_keeps_rows_and_their_types() -> None:
    table = pa.table({"id": pa.array(range(6), pa.int8())})

    dataset = data.from_arrow(table).filter(lambda row: row["id"] % 3 == 0)

    assert dataset.count() == 2
    assert dataset.to_arrow().equals(pa.table({"id": pa.array([0, 3], pa.int8())}))


@pytest.mark.parametrize("fn", [None, "x > 3", 5])
def test_what_is_no_function_is_refused_at_once(fn: Any) -> None:
    with pytest.raises(ConfigError, match="not a function"):
        data.range(3).filter(fn)


def test_map_batches_gets_batches_of_the_size_and_kind_it_asks_for() -> None:
    seen: list[tuple[type, int]] = []

    def look(batch: Any) -> Any:
        seen.append((type(batch), len(batch) if not isinstance(batch, dict) else len(batch["id"])))
        return batch

    for batch_format in ("numpy", "default", "pandas", "pyarrow"):
        dataset = data.range(5).map_batches(look, batch_size=3, batch_format=batch_format)
        assert ids(dataset) == [0, 1, 2, 3, 4]

    kinds = [dict, dict, pd.DataFrame, pa.Table]
    assert seen == [(kind, size) for kind in kinds for size in (3, 2)]


@pytest.mark.parametrize(
    "made",
    [
        {"id": np.array([7, 8])},
        {"id": [7, 8]},
        pd.DataFrame({"id": [7, 8]}),
        pa.table({"id": [7, 8]}),
        pa.record_batch({"id": [7, 8]}),
    ],
    ids=["arrays", "lists", "frame", "table", "record batch"],
)
def test_map_batches_may_return_any_kind_of_batch(made: Any) -> None:
    assert ids(data.range(1).map_batches(lambda batch: made)) == [7, 8]


def test_map_batches_may_yield_batches() -> None:
    def halves(batch: dict[str, Any]) -> Any:
        yield {"id": batch["id"][:1]}
        yield {"id": batch["id"][1:]}

    assert ids(data.range(5).map_batches(halves, batch_size=3)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (None, r"map_batches\(<lambda>\) returned NoneType: a batch is a dict of arrays"),
        ([1, 2], "returned list: a batch is"),
        ({"a": 1}, "returned int for column 'a': a column of a batch has one value for each row"),
        ({"a": [1], "b": [1, 2]}, "columns of different lengths: 'a' has 1, 'b' has 2"),
    ],
    ids=str,
)
def test_map_batches_must_make_batches(made: Any, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        data.range(1).map_batches(lambda batch: made).take_all()


def test_a_class_is_instantiated_once_for_all_batches_of_a_pass() -> None:
    class Adder:
        made = 0

        def __init__(self, base: int, *, more: int) -> None:
            Adder.made += 1
            self.by = base + more

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return {"id": batch["id"] + self.by}

    dataset = data.range(4).map_batches(
        Adder,
        batch_size=1,
        fn_constructor_args=[10],
        fn_constructor_kwargs={"more": 5},
        concurrency=2,
        num_gpus=1,
    )

    assert ids(dataset) == ids(dataset) == [15, 16, 17, 18]
    assert Adder.made == 2


def test_a_broken_promise_about_rows_is_told() -> None:
    dataset = data.range(4).map_batches(
        lambda batch: {"id": batch["id"][:1]}, udf_modifying_row_count=False
    )

    with pytest.raises(ConfigError, match="made 1 rows of 4, against udf_modifying_row_count=Fals"):
        dataset.take_all()


def test_where_ray_would_run_a_function_is_taken_and_a_slip_of_the_pen_is_not() -> None:
    with pytest.raises(TypeError, match=r"map_batches\(\) got an unexpected keyword .*'batchsize'"):
        data.range(3).map_batches(lambda batch: batch, batchsize=3)
    assert ids(data.range(2).map(lambda row: row, num_cpus=2).repartition(8)) == [0, 1]


ABC = [{"a": 1, "b": 2, "c": 3}]
TABLES: dict[str, Dataset] = {
    "rows": data.from_items(ABC),
    "numpy": data.from_items(ABC).map_batches(lambda batch: batch),
    "pandas": data.from_pandas(pd.DataFrame(ABC)),
    "pyarrow": data.from_arrow(pa.Table.from_pylist(ABC)),
}
tables = pytest.mark.parametrize("dataset", TABLES.values(), ids=TABLES.keys())


@tables
def test_columns_are_chosen_dropped_and_renamed(dataset: Dataset) -> None:
    assert dataset.select_columns(["c", "a"]).columns() == ["c", "a"]
    assert dataset.select_columns("b").take_all() == [{"b": 2}]
    assert dataset.drop_columns(["a", "c"]).take_all() == [{"b": 2}]
    assert dataset.rename_columns({"a": "x"}).take_all() == [{"x": 1, "b": 2, "c": 3}]
    assert dataset.rename_columns(["x", "y", "z"]).take_all() == [{"x": 1, "y": 2, "z": 3}]
    assert dataset.rename_columns({"a": "b", "b": "a"}).take_all() == [{"b": 1, "a": 2, "c": 3}]


@tables
@pytest.mark.parametrize(
    "choose",
    [
        lambda dataset: dataset.select_columns(["a", "z"]),
        lambda dataset: dataset.drop_columns("z"),
        lambda dataset: dataset.rename_columns({"z": "y"}),
    ],
    ids=["select", "drop", "rename"],
)
def test_an_unknown_column_is_told_with_those_there_are(dataset: Dataset, choose: Any) -> None:
    with pytest.raises(ConfigError, match="no column 'z': the columns are 'a', 'b', 'c'"):
        choose(dataset).take_all()


@pytest.mark.parametrize(
    ("choose", "rule"),
    [
        (lambda dataset: dataset.select_columns([]), r"cols=\[\]: at least one column"),
        (lambda dataset: dataset.select_columns(["a", "a"]), "no column may be named twice"),
        (lambda dataset: dataset.select_columns([1]), "a column name must be a string: 1"),
        (lambda dataset: dataset.drop_columns(["a", "b", "c"]).take(1), "leaves no column"),
        (lambda dataset: dataset.rename_columns(["x"]).take(1), "1 names for 3 columns: 'a'"),
        (lambda dataset: dataset.rename_columns({"a": "b"}).take(1), "gives a name twice"),
    ],
    ids=["none", "twice", "number", "all", "too few", "clash"],
)
def test_a_choice_of_columns_that_cannot_be_is_told(choose: Any, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        choose(data.from_items(ABC))


def test_a_shuffle_is_a_permutation_that_follows_from_its_seed() -> None:
    dataset = data.range(1000)

    first, second = ids(dataset.random_shuffle(seed=1)), ids(dataset.random_shuffle(seed=2))

    assert sorted(first) == sorted(second) == list(range(1000))
    assert first != second != list(range(1000))
    assert first == ids(dataset.random_shuffle(seed=1))


def test_the_order_of_a_shuffle_is_the_same_in_every_version() -> None:
    """A run may be resumed years later: these numbers are never to change."""
    assert ids(data.range(8).random_shuffle(seed=1)) == [1, 6, 4, 7, 2, 0, 5, 3]


def test_a_shuffled_dataset_is_the_same_each_time_it_is_looked_at() -> None:
    dataset = data.range(50).random_shuffle()

    assert ids(dataset) == ids(dataset) == [row["id"] for row in dataset.iter_rows()]
    assert ids(dataset) != ids(data.range(50).random_shuffle())


def test_a_local_shuffle_mixes_rows_within_its_buffer() -> None:
    dataset = data.range(100)

    [batch] = dataset.iter_batches(
        batch_size=100, local_shuffle_buffer_size=10, local_shuffle_seed=1
    )
    [other] = dataset.iter_batches(
        batch_size=100, local_shuffle_buffer_size=10, local_shuffle_seed=2
    )

    mixed = batch["id"].reshape(10, 10)
    assert np.sort(mixed).tolist() == np.arange(100).reshape(10, 10).tolist()
    assert not np.array_equal(np.sort(mixed), mixed)
    assert not np.array_equal(other["id"], batch["id"])


def test_limit_and_union_and_their_counts() -> None:
    dataset = data.range(3).union(data.range(2).filter(lambda row: True), data.range(2))

    assert ids(dataset) == [0, 1, 2, 0, 1, 0, 1]
    assert dataset.limit(4).count() == 4
    assert ids(dataset.limit(4)) == [0, 1, 2, 0]
    assert dataset.limit(100).count() == 7
    assert data.range(3).limit(0).take_all() == []
    assert data.range(3).union(data.range(4)).count() == 7


def test_a_union_is_of_datasets() -> None:
    with pytest.raises(ConfigError, match="union with list: it must be a Dataset"):
        data.range(3).union([{"id": 3}])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "sizes"), [(0.25, (6, 2)), (0.3, (5, 3)), (0.1, (7, 1)), (3, (5, 3)), (1, (7, 1))]
)
def test_rows_are_parted_into_training_and_test(size: float, sizes: tuple[int, int]) -> None:
    train, test = data.range(8).train_test_split(size)

    assert ids(train) + ids(test) == list(range(8))
    assert (train.count(), test.count()) == sizes


def test_a_part_is_not_one_row_short_because_floats_are_inexact() -> None:
    train, test = data.range(10).train_test_split(0.9)

    assert (train.count(), test.count()) == (1, 9)


def test_a_shuffled_split_has_every_row_on_one_side() -> None:
    train, test = data.range(50).train_test_split(10, shuffle=True)

    assert sorted(ids(train) + ids(test)) == list(range(50))
    assert ids(test) != list(range(40, 50))
    again = data.range(50).train_test_split(10, shuffle=True, seed=1)
    assert ids(again[1]) == ids(data.range(50).train_test_split(10, shuffle=True, seed=1)[1])


@pytest.mark.parametrize(
    ("size", "rule"),
    [
        (0.0, "as a float it must be between 0 and 1"),
        (1.0, "as a float it must be between 0 and 1"),
        (-0.5, "as a float it must be between 0 and 1"),
        (0, "less than 1; it is the number of rows for testing"),
        (8, "of 8 rows that leaves 0 for training and 8 for testing"),
        (9, "of 8 rows that leaves 0 for training"),
        ("half", "not a whole number"),
        (True, "not a whole number"),
    ],
)
def test_a_size_that_leaves_nothing_is_refused(size: Any, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        data.range(8).train_test_split(size)


def test_split_gives_stretches_of_nearly_or_exactly_one_size() -> None:
    dataset = data.range(8)

    assert [ids(part) for part in dataset.split(3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [ids(part) for part in dataset.split(3, equal=True)] == [[0, 1], [2, 3], [4, 5]]
    assert [ids(part) for part in data.range(1).split(2)] == [[0], []]
    some = dataset.filter(lambda row: row["id"] > 2)
    assert [ids(part) for part in some.split(2)] == [[3, 4, 5], [6, 7]]


@pytest.mark.parametrize("n", [0, -1, 1.5])
def test_a_dataset_is_split_into_at_least_one(n: Any) -> None:
    with pytest.raises(ConfigError, match="n="):
        data.range(8).split(n)
    with pytest.raises(ConfigError, match="n="):
        data.range(8).streaming_split(n)


def test_what_was_materialized_does_not_run_again() -> None:
    calls: list[int] = []

    def look(row: dict[str, Any]) -> dict[str, Any]:
        calls.append(row["id"])
        return row

    dataset = data.range(3).map(look).materialize()

    assert ids(dataset) == ids(dataset) == [0, 1, 2]
    assert calls == [0, 1, 2]

"""Blocks in their four forms: what a batch is, whatever the rows came from."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from holdfast import data
from holdfast.data.blocks import names_of, owned, picked, regrouped, size_of, take
from holdfast.data.conversion import converted, joined, rows_of
from holdfast.data.dataset import Dataset
from holdfast.errors import HoldfastBug

ROWS: list[dict[str, Any]] = [{"a": n, "b": n / 2, "c": f"t{n}", "d": n % 2 == 0} for n in range(7)]
COLUMNS: dict[str, list[Any]] = {name: [row[name] for row in ROWS] for name in ROWS[0]}

SOURCES: dict[str, Dataset] = {
    "rows": data.from_items(ROWS),
    "pandas": data.from_pandas(pd.DataFrame(COLUMNS)),
    "pyarrow": data.from_arrow(pa.table(COLUMNS)),
    "numpy": data.from_items(ROWS).map_batches(lambda batch: batch),
    "mixed": data.from_items(ROWS[:2]).union(
        data.from_pandas(pd.DataFrame(ROWS[2:4])), data.from_arrow(pa.Table.from_pylist(ROWS[4:]))
    ),
}
sources = pytest.mark.parametrize("dataset", SOURCES.values(), ids=SOURCES.keys())


@sources
def test_a_batch_of_arrays_is_the_same_from_every_source(dataset: Dataset) -> None:
    first, second = dataset.iter_batches(batch_size=4)

    assert {name: array.tolist() for name, array in first.items()} == {
        name: values[:4] for name, values in COLUMNS.items()
    }
    assert {name: array.dtype for name, array in first.items()} == {
        "a": np.int64,
        "b": np.float64,
        "c": object,
        "d": bool,
    }
    assert {len(array) for array in second.values()} == {3}


@sources
def test_rows_are_the_same_from_every_source(dataset: Dataset) -> None:
    assert list(dataset.iter_rows()) == ROWS
    assert [type(value) for value in dataset.take(1)[0].values()] == [int, float, str, bool]


@sources
def test_a_batch_may_be_a_frame_or_a_table(dataset: Dataset) -> None:
    frames = list(dataset.iter_batches(batch_size=4, batch_format="pandas"))
    tables = list(dataset.iter_batches(batch_size=4, batch_format="pyarrow"))

    assert [type(batch) for batch in frames] == [pd.DataFrame] * 2
    assert [row for batch in frames for row in batch.to_dict("records")] == ROWS
    assert [type(batch) for batch in tables] == [pa.Table] * 2
    assert [row for batch in tables for row in batch.to_pylist()] == ROWS


@sources
def test_what_a_loop_is_given_may_be_written_to(dataset: Dataset) -> None:
    for batch in dataset.iter_batches(batch_size=4):
        for name in "abd":
            batch[name][:] = 1
    for frame in dataset.iter_batches(batch_size=4, batch_format="pandas"):
        frame.loc[:, "a"] = 1
    for row in dataset.iter_rows():
        row["a"] = 1

    assert dataset.take_all() == ROWS


def test_what_lies_inside_a_row_may_be_written_to() -> None:
    def spoil(row: dict[str, Any]) -> dict[str, Any]:
        row["array"] /= 2
        row["list"].append(1)
        return row

    array = np.ones(2)
    rows = data.from_items([{"array": array, "list": [0]}])
    frame = data.from_pandas(pd.DataFrame({"array": [np.ones(2)], "list": [[0]]}))
    objects = np.empty(1, dtype=object)
    objects[0] = [0]

    for dataset in (rows, frame):
        for _ in range(2):
            [row] = dataset.map(spoil).take_all()

            assert (row["array"].tolist(), row["list"]) == ([0.5, 0.5], [0, 1])
    data.from_numpy(objects).take_all()[0]["data"].append(1)
    assert array.tolist() == [1, 1]
    assert objects[0] == [0]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], "int64"),
        ([1, 2.5], "float64"),
        ([True, False], "bool"),
        ([np.float32(1), np.float32(2)], "float32"),
        ([np.datetime64("2020-01-01"), np.datetime64("2021-01-01")], "datetime64[D]"),
        ([1, None], "float64"),
        (["a", "b"], "object"),
        (["a", None], "object"),
        ([b"a", b"b"], "object"),
        ([None, None], "object"),
        ([True, None], "object"),
        ([{"x": 1}, {"x": 2}], "object"),
        ([(1, 2), (3, 4)], "object"),
        ([dt.date(2020, 1, 1), dt.date(2021, 1, 1)], "object"),
    ],
)
def test_a_column_has_the_type_of_its_values(values: list[Any], dtype: str) -> None:
    dataset = data.from_items([{"x": value} for value in values])

    [batch] = dataset.iter_batches()

    assert batch["x"].shape == (2,)
    assert str(batch["x"].dtype) == dtype
    if dtype == "object":
        assert batch["x"].tolist() == values


@pytest.mark.parametrize(
    "values",
    [
        [[1, 2], [3, 4]],
        [np.array([1, 2]), np.array([3, 4])],
        [[1, 2], np.array([3, 4])],
    ],
)
def test_values_of_one_shape_are_stacked(values: list[Any]) -> None:
    [batch] = data.from_items([{"x": value} for value in values]).iter_batches()

    assert batch["x"].tolist() == [[1, 2], [3, 4]]
    assert batch["x"].shape == (2, 2)


@pytest.mark.parametrize(
    "values",
    [
        [[1, 2], [3]],
        [[[1], [2, 3]], [[4], [5, 6]]],
        [np.zeros(2), np.zeros(3)],
        [["a", "b"], ["c", "d"]],
        [[1, 2], None],
    ],
)
def test_values_of_no_single_shape_stay_as_they_are(values: list[Any]) -> None:
    seen: list[Any] = []

    def look(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(row["x"])
        return row

    [batch] = data.from_items([{"x": value} for value in values]).map(look).iter_batches()

    assert batch["x"].shape == (2,)
    assert all(item is value for item, value in zip(batch["x"], seen, strict=True))


def test_lists_in_tables_are_stacked_too() -> None:
    fixed = pa.array([[[1, 2]], [[3, 4]], [[5, 6]]], pa.list_(pa.list_(pa.int64(), 2), 1))
    table = pa.table({"free": [[1.0, 2.0]] * 3, "fixed": fixed, "ragged": [[1], [], [2, 3]]})

    [batch] = data.from_arrow(table).iter_batches()

    assert batch["free"].shape == (3, 2)
    assert batch["fixed"].shape == (3, 1, 2)
    assert batch["fixed"].tolist() == [[[1, 2]], [[3, 4]], [[5, 6]]]
    assert [values.tolist() for values in batch["ragged"]] == [[1], [], [2, 3]]


def test_a_tensor_column_of_arrow_is_an_array() -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12).reshape(3, 2, 2))

    [batch] = data.from_arrow(pa.table({"x": tensors})).iter_batches()

    assert batch["x"].tolist() == np.arange(12).reshape(3, 2, 2).tolist()


def test_images_go_to_arrow_and_back() -> None:
    images = np.arange(24, dtype=np.uint8).reshape(3, 2, 2, 2)

    back = data.from_arrow(data.from_numpy(images).to_arrow()).to_numpy()["data"]

    assert np.array_equal(back, images)
    assert back.dtype == np.uint8


def test_empty_images_go_to_arrow() -> None:
    table = data.from_numpy(np.zeros((2, 0, 3))).to_arrow()

    assert table["data"].to_pylist() == [[], []]


def test_a_missing_number_is_nan_whatever_it_came_from() -> None:
    frame = pd.DataFrame({"x": pd.array([1, None], dtype="Int64")})
    table = pa.table({"x": pa.array([1, None], pa.int64())})

    for dataset in (
        data.from_pandas(frame),
        data.from_arrow(table),
        data.from_items([{"x": 1}, {"x": None}]),
    ):
        [batch] = dataset.iter_batches()

        assert batch["x"].dtype == np.float64
        assert batch["x"][0] == 1 and np.isnan(batch["x"][1])


@pytest.mark.parametrize(
    ("values", "dtype"), [([True, None], "boolean"), (["a", None], "str"), (["a", None], object)]
)
def test_what_else_is_missing_in_a_frame_is_none(values: list[Any], dtype: Any) -> None:
    frame = pd.DataFrame({"x": pd.Series(values, dtype=dtype)})

    assert data.from_pandas(frame).to_numpy()["x"].tolist() == values


def test_arrays_in_rows_go_to_arrow() -> None:
    dataset = data.from_items([{"x": np.eye(2), "y": [1, None]}])

    assert dataset.to_arrow().to_pylist() == [{"x": [[1, 0], [0, 1]], "y": [1, None]}]


def test_words_of_a_dictionary_are_words() -> None:
    words = pa.array(["a", "b", "a"]).dictionary_encode()

    for dataset in (
        data.from_arrow(pa.table({"x": words})),
        data.from_pandas(pd.DataFrame({"x": pd.Categorical(["a", "b", "a"])})),
    ):
        assert dataset.to_numpy()["x"].tolist() == ["a", "b", "a"]


def test_pieces_of_different_shapes_become_objects() -> None:
    whole = joined([{"x": np.zeros((1, 2))}, {"x": np.zeros((1, 3))}])

    assert [value.shape for value in whole["x"]] == [(2,), (3,)]


def test_pieces_with_different_columns_are_filled_up() -> None:
    whole = joined([pa.table({"a": [1]}), pa.table({"b": ["x"]})])

    assert rows_of(converted(whole, "pyarrow")) == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


FORMS: list[Any] = [
    [{"a": n} for n in range(5)],
    {"a": np.arange(5)},
    pd.DataFrame({"a": range(5)}),
    pa.table({"a": list(range(5))}),
]
forms = pytest.mark.parametrize("block", FORMS, ids=["rows", "numpy", "pandas", "pyarrow"])


@forms
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (range(1, 3), [1, 2]),
        (range(0, 5, 2), [0, 2, 4]),
        (range(4, 4), []),
        (np.array([4, 0, 0]), [4, 0, 0]),
    ],
    ids=str,
)
def test_rows_are_taken_from_every_form(block: Any, wanted: Any, expected: list[int]) -> None:
    assert [row["a"] for row in rows_of(take(block, wanted))] == expected


@forms
def test_a_block_knows_its_size_and_names(block: Any) -> None:
    assert (size_of(block), names_of(block), size_of(owned(block))) == (5, ["a"], 5)


@forms
@pytest.mark.parametrize("form", ["rows", "numpy", "pandas", "pyarrow"])
def test_every_form_becomes_every_other(block: Any, form: Any) -> None:
    assert rows_of(converted(block, form)) == [{"a": n} for n in range(5)]


def test_a_stream_is_read_no_further_than_the_last_wanted_row() -> None:
    def stream() -> Any:
        yield [{"a": 0}, {"a": 1}]
        yield [{"a": 2}, {"a": 3}]
        raise AssertionError("read too far")

    assert list(picked(stream(), range(1, 4, 2))) == [[{"a": 1}], [{"a": 3}]]
    assert list(picked(stream(), range(0))) == []


def test_groups_have_the_sizes_that_were_asked_for() -> None:
    blocks = [[{"a": 0}, {"a": 1}, {"a": 2}], [], [{"a": 3}], [{"a": 4}, {"a": 5}]]

    groups = [[row["a"] for piece in group for row in piece] for group in regrouped(blocks, [2, 3])]
    short = [[row["a"] for piece in group for row in piece] for group in regrouped(blocks, [4, 9])]

    assert groups == [[0, 1], [2, 3, 4]]
    assert short == [[0, 1, 2, 3], [4, 5]]


def test_what_is_no_block_is_our_bug() -> None:
    with pytest.raises(HoldfastBug, match="set is not a block"):
        names_of({1})

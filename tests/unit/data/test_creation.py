from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from holdfast import data
from holdfast.errors import ConfigError


def test_items_that_are_dicts_are_rows() -> None:
    dataset = data.from_items([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])

    assert dataset.take_all() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert dataset.columns() == ["a", "b"]
    assert dataset.count() == 2


@pytest.mark.parametrize("item", [3, "text", None, (1, 2), [1, 2]])
def test_an_item_that_is_no_dict_is_wrapped(item: Any) -> None:
    assert data.from_items([item]).take_all() == [{"item": item}]


def test_a_column_that_some_items_lack_is_none_there() -> None:
    dataset = data.from_items([{"a": 1}, {"b": 2}])

    assert dataset.take_all() == [{"a": 1, "b": None}, {"a": None, "b": 2}]


def test_items_may_come_from_a_generator() -> None:
    dataset = data.from_items(n * n for n in range(3))

    assert dataset.take_all() == dataset.take_all() == [{"item": 0}, {"item": 1}, {"item": 4}]


def test_no_items_are_a_dataset_without_rows() -> None:
    dataset = data.from_items([])

    assert (dataset.count(), dataset.take_all(), dataset.columns()) == (0, [], None)
    assert list(dataset.iter_batches()) == []
    assert dataset.to_numpy() == {}
    assert dataset.to_pandas().empty
    assert dataset.to_arrow().num_rows == 0


@pytest.mark.parametrize("items", ["text", b"bytes", {"a": [1, 2]}])
def test_one_thing_is_not_taken_for_many_items(items: Any) -> None:
    with pytest.raises(ConfigError, match="it needs a list with one item per row"):
        data.from_items(items)


def test_a_column_must_be_named_by_a_text() -> None:
    with pytest.raises(ConfigError, match="a row has a column 1: a column name must be a string"):
        data.from_items([{1: 2}])


def test_an_array_has_a_row_for_each_entry() -> None:
    images = np.arange(12.0).reshape(3, 2, 2)

    dataset = data.from_numpy(images)

    assert dataset.count() == 3
    assert np.array_equal(dataset.take(2)[1]["data"], images[1])
    assert np.array_equal(dataset.to_numpy()["data"], images)


def test_arrays_follow_one_another_under_a_name_of_choice() -> None:
    dataset = data.from_numpy([np.arange(2), np.arange(5, 8)], column="x")

    assert dataset.take_all() == [{"x": 0}, {"x": 1}, {"x": 5}, {"x": 6}, {"x": 7}]


@pytest.mark.parametrize("wrong", [5, np.float64(1), "x", [[1, 2]]])
def test_what_is_no_array_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="it needs an array of at least one dimension"):
        data.from_numpy(wrong)


def test_a_frame_keeps_its_columns_and_loses_its_index() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}, index=[7, 9])

    dataset = data.from_pandas([frame, frame])

    assert dataset.take(3) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": 1, "b": "x"}]
    assert dataset.to_pandas().index.tolist() == [0, 1, 2, 3]
    assert dataset.to_pandas().dtypes.tolist() == frame.dtypes.tolist()


def test_a_frame_with_numbered_columns_gets_names() -> None:
    assert data.from_pandas(pd.DataFrame([[1, 2]])).take_all() == [{"0": 1, "1": 2}]


def test_a_table_keeps_its_types() -> None:
    table = pa.table({"a": pa.array([1, None], pa.int32()), "b": ["x", "y"]})

    dataset = data.from_arrow(table)

    assert dataset.to_arrow().equals(table)
    assert dataset.take_all() == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]


@pytest.mark.parametrize("make", [data.from_pandas, data.from_arrow])
def test_a_table_of_another_kind_is_refused(make: Any) -> None:
    with pytest.raises(ConfigError, match="got dict: it needs a"):
        make({"a": [1]})


def test_numbers_are_rows_with_an_id() -> None:
    assert data.range(3).take_all() == [{"id": 0}, {"id": 1}, {"id": 2}]


@pytest.mark.parametrize("n", [-1, 2.0, "3", True])
def test_a_number_of_rows_is_a_whole_number(n: Any) -> None:
    with pytest.raises(ConfigError, match="n="):
        data.range(n)


def test_items_of_a_torch_dataset_are_fetched_when_they_are_wanted() -> None:
    class Squares(torch.utils.data.Dataset):
        def __init__(self) -> None:
            self.fetched: list[int] = []

        def __len__(self) -> int:
            return 1000

        def __getitem__(self, number: int) -> int:
            self.fetched.append(number)
            return number * number

    squares = Squares()

    [_, half] = data.from_torch(squares).split(2)

    assert squares.fetched == []
    assert half.take(2) == [{"item": 250_000}, {"item": 251_001}]
    assert squares.fetched == [500, 501]


def test_a_torch_dataset_of_tensors_becomes_batches_of_tensors() -> None:
    tensors = torch.utils.data.TensorDataset(torch.arange(6.0).reshape(3, 2), torch.arange(3))
    dataset = data.from_torch(tensors).map(
        lambda row: {"x": row["item"][0], "y": int(row["item"][1])}
    )

    [batch] = dataset.iter_torch_batches(batch_size=3)

    assert torch.equal(batch["x"], torch.arange(6.0).reshape(3, 2))
    assert torch.equal(batch["y"], torch.arange(3))


def test_a_torch_dataset_that_only_iterates_is_refused() -> None:
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            return iter([1, 2])

    with pytest.raises(ConfigError, match="it needs a map-style dataset"):
        data.from_torch(Stream())


class HuggingFaceStandIn:
    """As much of `datasets.Dataset` as is used; tried against version 5.0.1 of the real one."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @property
    def num_rows(self) -> int:
        return int(self.table.num_rows)

    def with_format(self, kind: str) -> HuggingFaceStandIn:
        assert kind == "arrow"
        return self

    def __getitem__(self, rows: range | list[int]) -> pa.Table:
        assert isinstance(rows, range | list)
        return self.table.take(pa.array(rows, pa.int64()))


def test_rows_of_hugging_face_come_as_tables() -> None:
    dataset = data.from_huggingface(HuggingFaceStandIn(pa.table({"a": list(range(2000))})))
    parts = dataset.random_shuffle(seed=1).streaming_split(2)

    rows = [row["a"] for part in parts for row in part.iter_rows()]

    assert dataset.take(2) == [{"a": 0}, {"a": 1}]
    assert sorted(rows) == list(range(2000))


def test_several_splits_of_hugging_face_are_told_apart() -> None:
    with pytest.raises(ConfigError, match=r"of 'train', 'test'.*\n.*dataset\['train'\]"):
        data.from_huggingface({"train": 1, "test": 2})


def test_a_stream_of_hugging_face_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"got list_iterator.*\n.*without streaming=True"):
        data.from_huggingface(iter([1]))


def test_an_argument_about_parallelism_is_taken_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    assert data.range(2, parallelism=4, override_num_blocks=2).count() == 2
    with pytest.raises(
        TypeError, match=r"from_items\(\) got an unexpected keyword argument 'colum'"
    ):
        data.from_items([1], colum="x")
    with pytest.raises(TypeError, match=r"read_csv\(\) got an unexpected keyword argument 'sep'"):
        data.read_csv(tmp_path, sep=";")


def test_a_dataset_does_not_follow_later_changes_of_what_it_was_made_from() -> None:
    array, frame, rows = np.zeros(3), pd.DataFrame({"a": [0, 0]}), [{"a": 0}]
    datasets = [data.from_numpy(array), data.from_pandas(frame), data.from_items(rows)]

    array[:] = 1
    frame.loc[:, "a"] = 1
    rows[0]["a"] = 1
    rows.append({"a": 1})

    assert [list(dataset.take_all()[0].values()) for dataset in datasets] == [[0], [0], [0]]
    assert [dataset.count() for dataset in datasets] == [3, 2, 1]

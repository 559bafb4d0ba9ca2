from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from holdfast import data
from holdfast.errors import ConfigError


class Pair(NamedTuple):
    x: Any
    y: Any


def test_batches_are_tensors_by_column() -> None:
    dataset = data.from_items([{"x": n, "y": [n / 2, 1.0], "z": n % 2 == 0} for n in range(3)])

    first, second = dataset.iter_torch_batches(batch_size=2)

    assert torch.equal(first["x"], torch.tensor([0, 1]))
    assert torch.equal(first["y"], torch.tensor([[0.0, 1.0], [0.5, 1.0]], dtype=torch.float64))
    assert torch.equal(second["z"], torch.tensor([True]))


@pytest.mark.parametrize(
    "dataset",
    [
        data.from_numpy(np.arange(4), column="x"),
        data.from_pandas(pd.DataFrame({"x": range(4)})),
        data.from_arrow(pa.table({"x": list(range(4))})),
    ],
    ids=["numpy", "pandas", "pyarrow"],
)
def test_tensors_may_be_written_to_whatever_they_were_made_from(dataset: data.Dataset) -> None:
    """Torch warns of arrays that may not be written to, and warnings are errors here."""
    for _ in range(2):
        [batch] = dataset.iter_torch_batches()
        batch["x"] += 1

        assert batch["x"].tolist() == [1, 2, 3, 4]


def test_types_are_as_asked_for_all_columns_or_for_some() -> None:
    dataset = data.from_items([{"x": 1, "y": 2}])

    [all_same] = dataset.iter_torch_batches(dtypes=torch.float32)
    [some] = dataset.iter_torch_batches(dtypes={"y": torch.int8})

    assert [tensor.dtype for tensor in all_same.values()] == [torch.float32, torch.float32]
    assert [tensor.dtype for tensor in some.values()] == [torch.int64, torch.int8]


def test_a_type_for_an_unknown_column_is_told() -> None:
    with pytest.raises(ConfigError, match="no column 'z': the columns are 'id'"):
        list(data.range(3).iter_torch_batches(dtypes={"z": torch.int8}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", "b"], "column 'x' has values of type str, of no single shape"),
        ([[1], [1, 2]], "column 'x' has values of type list, of no single shape"),
        ([np.datetime64("2020-01-01"), np.datetime64("2020-01-02")], "type datetime64"),
    ],
    ids=["texts", "ragged", "times"],
)
def test_a_column_that_is_no_tensor_is_named(values: list[Any], message: str) -> None:
    dataset = data.from_items([{"x": value} for value in values])

    with pytest.raises(ConfigError, match=message):
        list(dataset.iter_torch_batches())


def test_a_function_may_make_the_batch() -> None:
    def collate(batch: dict[str, np.ndarray]) -> Any:
        assert isinstance(batch["id"], np.ndarray)
        return Pair([torch.as_tensor(batch["id"])], {"n": len(batch["id"])})

    [batch] = data.range(3).iter_torch_batches(collate_fn=collate)

    assert torch.equal(batch.x[0], torch.arange(3))
    assert batch.y == {"n": 3}


def test_tensors_go_to_the_device_that_is_asked_for_or_to_the_workers() -> None:
    """The `meta` device is there on every machine."""

    def collate(batch: dict[str, np.ndarray]) -> Any:
        return Pair([torch.as_tensor(batch["id"])], ({"id": torch.as_tensor(batch["id"])}, "text"))

    iterator = data.range(3).iterator()
    iterator.device = "meta"

    [asked] = data.range(3).iter_torch_batches(device="meta")
    [auto] = iterator.iter_torch_batches(device="auto")
    [on_cpu] = iterator.iter_torch_batches(device="cpu")
    [made] = iterator.iter_torch_batches(collate_fn=collate)
    assert [batch["id"].device.type for batch in (asked, auto, on_cpu)] == ["meta", "meta", "cpu"]
    assert isinstance(made, Pair)
    assert made.x[0].device.type == made.y[0]["id"].device.type == "meta"
    assert made.y[1] == "text"


def test_a_function_and_types_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match="collate_fn and dtypes were given"):
        data.range(3).iter_torch_batches(collate_fn=lambda batch: batch, dtypes=torch.int8)


def test_the_last_batch_can_be_left_out_and_the_order_mixed() -> None:
    batches = list(
        data.range(10).iter_torch_batches(
            batch_size=4, drop_last=True, local_shuffle_buffer_size=10, local_shuffle_seed=1
        )
    )

    assert [len(batch["id"]) for batch in batches] == [4, 4]
    assert len(set(torch.cat([batch["id"] for batch in batches]).tolist())) == 8

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from holdfast import data
from holdfast.data.libraries import library
from holdfast.errors import ConfigError


def test_a_loop_can_be_run_again_and_left() -> None:
    batches = data.range(5).iter_batches(batch_size=2)

    assert next(iter(batches))["id"].tolist() == [0, 1]
    assert [batch["id"].tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert [batch["id"].tolist() for batch in batches] == [[0, 1], [2, 3], [4]]


def test_a_last_batch_that_is_short_can_be_left_out() -> None:
    batches = data.range(5).iter_batches(batch_size=2, drop_last=True)

    assert [batch["id"].tolist() for batch in batches] == [[0, 1], [2, 3]]


def test_without_a_size_batches_have_some() -> None:
    sizes = [len(batch["id"]) for batch in data.range(2000).iter_batches(batch_size=None)]

    assert sum(sizes) == 2000 and len(sizes) > 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 0},
        {"batch_size": -1},
        {"batch_size": 1.5},
        {"batch_size": "all"},
        {"local_shuffle_buffer_size": 0},
        {"local_shuffle_seed": "x"},
        {"batch_format": "arrow"},
    ],
    ids=str,
)
def test_arguments_of_a_loop_are_checked_before_it_runs(arguments: dict[str, Any]) -> None:
    [(name, value)] = arguments.items()

    with pytest.raises(ConfigError, match=f"{name}={value!r}: "):
        data.range(3).iter_batches(**arguments)


def test_a_dataset_says_how_it_is_to_be_looped_over() -> None:
    with pytest.raises(TypeError, match=r"Dataset cannot be looped over itself: use iter_rows"):
        list(data.range(3))
    with pytest.raises(TypeError, match=r"DataIterator cannot be looped over itself: use iter"):
        list(data.range(3).iterator())


def test_a_schema_has_names_and_types() -> None:
    dataset = data.from_items([{"a": 1, "b": "x", "c": [1.0, 2.0]}])

    assert dataset.schema() == data.Schema(["a", "b", "c"], ["int64", "object", "float64"])
    assert data.from_items([]).schema() is None


def test_rows_can_be_shown_and_taken(capsys: pytest.CaptureFixture[str]) -> None:
    dataset = data.range(30)

    dataset.show(2)

    assert capsys.readouterr().out == "{'id': 0}\n{'id': 1}\n"
    assert len(dataset.take()) == 20
    assert dataset.take_batch(3)["id"].tolist() == [0, 1, 2]
    assert isinstance(dataset.take_batch(3, batch_format="pandas"), pd.DataFrame)


def test_a_limit_on_all_rows_is_kept() -> None:
    assert len(data.range(3).take_all(3)) == len(data.range(3).to_pandas(3)) == 3
    with pytest.raises(ConfigError, match="more than limit=2 rows"):
        data.range(3).take_all(2)
    with pytest.raises(ConfigError, match="more than limit=2 rows"):
        data.range(3).to_pandas(2)


def test_a_dataset_says_what_it_is_without_running() -> None:
    def clean(row: dict[str, Any]) -> Any:
        raise AssertionError("ran")

    dataset = data.range(5).map(clean).filter(functools.partial(clean)).limit(2)
    dataset.set_name("train")

    assert dataset.name == "train"
    assert repr(dataset) == "Dataset('train', 5 numbers, map(clean), filter(clean), rows 0 to 2)"
    more = data.range(1).flat_map(clean).map_batches(clean).union(dataset).random_shuffle()
    steps = "1 numbers, flat_map(clean), map_batches(clean), union of 2, shuffle"
    assert repr(more) == f"Dataset({steps})"


def test_a_library_that_is_not_there_is_to_be_installed() -> None:
    with pytest.raises(ConfigError, match=r"needs nosuch, which is not in.*\n.*pip install nosuch"):
        library("nosuch.thing")


def test_a_library_that_lacks_something_says_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy_library.py").write_text("import a_library_nobody_has")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ModuleNotFoundError, match="a_library_nobody_has"):
        library("needy_library")

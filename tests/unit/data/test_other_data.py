"""A saved position is refused for other data, and the differences are named."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from holdfast import data
from holdfast.data.dataset import Dataset
from holdfast.data.iterator import DataIterator
from holdfast.errors import ConfigError


def in_the_middle(dataset: Dataset) -> dict[str, Any]:
    """Return a state of the dataset as it is read back from a checkpoint."""
    iterator = dataset.iterator()
    loop = iter(iterator.iter_batches(batch_size=2))
    next(loop)
    saved: dict[str, Any] = json.loads(json.dumps(iterator.state_dict()))
    return saved


def resumed(dataset: Dataset, state: dict[str, Any]) -> DataIterator:
    iterator = dataset.iterator()
    iterator.load_state_dict(state)
    return iterator


def refusal(dataset: Dataset, state: dict[str, Any]) -> str:
    iterator = dataset.iterator()
    before = iterator.state_dict()
    with pytest.raises(ConfigError) as caught:
        iterator.load_state_dict(state)

    assert iterator.state_dict() == before, "a state that was refused has changed something"
    assert "use the same data again" in str(caught.value)
    return str(caught.value)


def parquet(folder: Path, **files: int) -> Path:
    folder.mkdir(exist_ok=True)
    for name, rows in files.items():
        table = pa.table({"id": [hash(name) % 97 * 100 + row for row in range(rows)]})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=3)
    return folder


def csv(folder: Path, **files: int) -> Path:
    folder.mkdir(exist_ok=True)
    for name, rows in files.items():
        (folder / f"{name}.csv").write_text("id\n" + "".join(f"{row}\n" for row in range(rows)))
    return folder


def test_a_renamed_parquet_file_is_named(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "d", a=6, b=8, c=6)
    state = in_the_middle(data.read_parquet(folder))
    (folder / "a.parquet").rename(folder / "z.parquet")

    message = refusal(data.read_parquet(folder), state)

    assert "file 'a.parquet' is not there any more" in message
    assert "file 'z.parquet' is new" in message


def test_a_shorter_csv_file_is_named(tmp_path: Path) -> None:
    state = in_the_middle(data.read_csv(csv(tmp_path, a=10, b=10)))

    message = refusal(data.read_csv(csv(tmp_path, b=9)), state)

    assert "file 'b.csv' had 23 bytes, now it has 21" in message


def test_a_parquet_file_with_other_row_groups_is_named(tmp_path: Path) -> None:
    state = in_the_middle(data.read_parquet(parquet(tmp_path, a=9)))

    message = refusal(data.read_parquet(parquet(tmp_path, a=7)), state)

    assert "file 'a.parquet' had 9 rows in 3 groups" in message
    assert "now it has 7 rows in 3 groups" in message


def test_files_in_another_order_are_named(tmp_path: Path) -> None:
    """Also where two files of one name and size change places."""
    parquet(tmp_path / "one", x=6)
    parquet(tmp_path / "two", x=6)
    paths = [tmp_path / "one" / "x.parquet", tmp_path / "two" / "x.parquet"]
    state = in_the_middle(data.read_parquet(paths))

    message = refusal(data.read_parquet(paths[::-1]), state)

    assert "the files are in another order: 'two/x.parquet' is where 'one/x.parquet' was" in message


def test_rows_that_are_skipped_in_a_file_are_a_difference(tmp_path: Path) -> None:
    def read(skipped: int) -> Dataset:
        options = pa.csv.ReadOptions(skip_rows_after_names=skipped)
        return data.read_csv(csv(tmp_path, a=10), read_options=options)

    state = in_the_middle(read(1))

    assert "1 CSV files had skipped=[0, 1], now it has skipped=[0, 2]" in refusal(read(2), state)


def test_data_that_was_moved_as_a_whole_is_the_same(tmp_path: Path) -> None:
    for read, make in ((data.read_parquet, parquet), (data.read_csv, csv)):
        folder = make(tmp_path / "here", a=4, b=4)
        state = in_the_middle(read(folder))
        folder = folder.rename(tmp_path / read.__name__)

        assert len(list(resumed(read(folder), state).iter_rows())) == 6


def test_of_very_many_files_a_difference_is_still_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.data.fingerprint.FILES_MAX", 2)
    state = in_the_middle(data.read_csv(csv(tmp_path, a=5, b=5, c=5, d=5)))
    assert len(json.dumps(state)) < 1000

    message = refusal(data.read_csv(csv(tmp_path, d=6)), state)

    assert "one of the files after the first 2 is different" in message
    assert "'b.csv' had" in refusal(data.read_csv(csv(tmp_path, d=5, b=3)), state)
    assert "4 files, now 5" in refusal(data.read_csv(csv(tmp_path, b=5, e=3)), state)


def even(row: dict[str, Any]) -> bool:
    return bool(row["id"] % 2 == 0)


def odd(row: dict[str, Any]) -> bool:
    return not even(row)


def same(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (lambda d: d.filter(even), lambda d: d.filter(odd), "filter had even, now it has odd"),
        (lambda d: d.filter(even), lambda d: d.flat_map(same), "filter(even) is now flat_map("),
        (
            lambda d: d.filter(even).filter(same),
            lambda d: d.filter(even),
            "filter(same) is not there any more",
        ),
        (lambda d: d.filter(even), lambda d: d.filter(even).limit(9), "rows 0 to 9 is new"),
        (
            lambda d: d.map_batches(same, batch_size=4),
            lambda d: d.map_batches(same, batch_size=5),
            "map_batches(same) had batch_size=4, now it has batch_size=5",
        ),
        (
            lambda d: d.union(data.range(3)),
            lambda d: d.union(data.from_items([{"id": n} for n in range(3)])),
            "3 numbers is now 3 rows in memory",
        ),
    ],
    ids=["function", "step", "missing", "new", "batches", "source"],
)
def test_other_steps_are_named(
    before: Callable[[Dataset], Dataset], now: Callable[[Dataset], Dataset], message: str
) -> None:
    state = in_the_middle(before(data.range(20)))
    state["rows"] = now(data.range(20)).plan.length()

    assert message in refusal(now(data.range(20)), state)


def in_memory() -> dict[str, Callable[[int], Dataset]]:
    rows = range(100)
    return {
        "items": lambda by: data.from_items([{"id": row + by, "x": "a"} for row in rows]),
        "numpy": lambda by: data.from_numpy(np.arange(100) + by, column="id"),
        "floats": lambda by: data.from_numpy(np.arange(100) + by * 1.0, column="id"),
        "pandas": lambda by: data.from_pandas(pd.DataFrame({"id": np.arange(100) + by})),
        "arrow": lambda by: data.from_arrow(pa.table({"id": [row + by for row in rows]})),
        "arrays": lambda by: data.from_numpy(np.ones((100, 2), np.int8) * (by + 1), column="id"),
        "lists": lambda by: data.from_items([{"id": [row, {"x": by}]} for row in rows]),
    }


@pytest.mark.parametrize("kind", in_memory())
def test_other_rows_in_memory_are_refused(kind: str) -> None:
    make = in_memory()[kind]
    state = in_the_middle(make(0))

    assert resumed(make(0), state).state_dict()["position"] == 2
    assert "100 rows in memory had other values" in refusal(make(1), state)


def test_other_columns_in_memory_are_named() -> None:
    state = in_the_middle(data.from_numpy(np.arange(9), column="id"))

    message = refusal(data.from_numpy(np.arange(9), column="x"), state)

    assert "9 rows in memory had the columns 'id', now 'x'" in message


def test_the_last_bit_of_a_number_makes_no_other_data() -> None:
    """Features that are computed anew on another processor are the same data."""
    values = np.random.RandomState(1).rand(200, 3)
    state = in_the_middle(data.from_numpy(values))

    assert resumed(data.from_numpy(np.nextafter(values, 2)), state).state_dict()["position"] == 2


def test_values_of_a_class_of_ones_own_do_not_make_other_data() -> None:
    """What they look like says where they lie in memory."""

    class Own:
        pass

    state = in_the_middle(data.from_items([Own() for _ in range(6)]).map(lambda row: {"id": 1}))
    again = data.from_items([Own() for _ in range(6)]).map(lambda row: {"id": 1})

    assert resumed(again, state).state_dict()["position"] == 2


def test_another_map_makes_the_same_rows_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def clean(row: dict[str, Any]) -> dict[str, Any]:
        return row

    def cleaner(row: dict[str, Any]) -> dict[str, Any]:
        return row

    state = in_the_middle(data.range(6).map(clean))

    with caplog.at_level(logging.WARNING, "holdfast"):
        iterator = resumed(data.range(6).map(cleaner).select_columns("id"), state)

    assert [row["id"] for row in iterator.iter_rows()] == [2, 3, 4, 5]
    assert "map had clean, now it has cleaner; select_columns(id) is new" in caplog.text


def test_seeds_are_no_difference() -> None:
    state = in_the_middle(data.range(20).random_shuffle())

    assert resumed(data.range(20).random_shuffle(), state).state_dict()["position"] == 2


def test_a_state_of_before_fingerprints_is_taken() -> None:
    state = in_the_middle(data.range(6))
    del state["data"]

    assert [row["id"] for row in resumed(data.range(6), state).iter_rows()] == [2, 3, 4, 5]


ENTRY = {"kind": "range", "label": "6 numbers"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "data is []"),
        ({"version": 2}, "a fingerprint of version 2: this Holdfast reads version 1"),
        ({"version": 1, "rows": 3}, "data is {"),
        ({"version": 1, "rows": [3], "values": []}, "data is {"),
        ({"version": 1, "rows": [ENTRY | {"floats": "x"}], "values": []}, "data is {"),
        ({"version": 1, "rows": [ENTRY | {"files": 3}], "values": []}, "data is {"),
        ({"version": 1, "rows": [ENTRY | {"files": [["a"]]}], "values": []}, "data is {"),
    ],
    ids=["list", "newer", "number", "entry", "floats", "files", "file"],
)
def test_a_fingerprint_that_is_none_is_refused(value: Any, message: str) -> None:
    state = in_the_middle(data.range(6)) | {"data": value}

    with pytest.raises(ConfigError) as caught:
        data.range(6).iterator().load_state_dict(state)

    assert message in str(caught.value)


def test_a_position_behind_the_end_is_refused() -> None:
    state = in_the_middle(data.range(6)) | {"position": 7}

    with pytest.raises(ConfigError, match="position is 7, and there are 6 rows"):
        data.range(6).iterator().load_state_dict(state)


def test_looking_for_differences_runs_no_step_and_reads_no_file(tmp_path: Path) -> None:
    def never(row: Any) -> Any:
        raise AssertionError("ran")

    folder = csv(tmp_path, a=3)
    dataset = data.read_csv(folder).map(never).filter(never).union(data.range(5).map(never))
    (folder / "a.csv").write_text("changed")

    assert json.loads(json.dumps(dataset.iterator().state_dict()))["data"]["version"] == 1

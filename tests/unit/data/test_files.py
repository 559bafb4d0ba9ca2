from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import cloudpickle
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast import data
from holdfast.data.dataset import Dataset, shard
from holdfast.errors import ConfigError


def ids(dataset: Dataset) -> list[int]:
    return [row["id"] for row in dataset.take_all()]


def write(path: Path, first: int, last: int, *, group_rows: int = 10, **more: Any) -> Path:
    table = pa.table(
        {"id": list(range(first, last)), "text": [f"t{n}" for n in range(first, last)]}
    )
    for name, values in more.items():
        table = table.append_column(name, pa.array(values))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group_rows, compression="none")
    return path


def spoil_group(path: Path, number: int) -> None:
    """Overwrite the bytes of one row group, so that reading it cannot go unnoticed."""
    group = pq.ParquetFile(path).metadata.row_group(number)
    with path.open("r+b") as file:
        for place in range(group.num_columns):
            column = group.column(place)
            file.seek(column.dictionary_page_offset or column.data_page_offset)
            file.write(b"\xff" * column.total_compressed_size)


def test_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    write(tmp_path / "b.parquet", 5, 9)
    write(tmp_path / "a.parquet", 0, 5)
    write(tmp_path / "c" / "a.parquet", 9, 12)

    dataset = data.read_parquet(str(tmp_path))

    assert ids(dataset) == list(range(12))
    assert dataset.count() == 12
    assert repr(dataset) == "Dataset(12 rows in 3 Parquet files)"


def test_files_are_read_in_the_order_they_are_given(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.parquet", 0, 2), write(tmp_path / "b", 2, 4)

    assert ids(data.read_parquet([second, str(first)])) == [2, 3, 0, 1]


def test_hidden_and_other_files_in_a_folder_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 2)
    for name in ("_SUCCESS", "_old.parquet", ".b.parquet", "notes.txt", ".tmp/c.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("not parquet")

    assert ids(data.read_parquet(tmp_path)) == [0, 1]


def test_row_groups_without_a_wanted_row_stay_closed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 0, 50)
    dataset = data.read_parquet(path)
    spoil_group(path, 0)
    spoil_group(path, 4)

    assert dataset.count() == 50
    late = dataset.split(5)[2]
    assert ids(late) == list(range(20, 30))
    with pytest.raises(OSError, match="deserialize") as caught:
        dataset.take(1)
    assert caught.value.__notes__ == [f"while reading row group 0 of {path}"]


def test_a_resumed_shard_does_not_read_what_was_consumed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 0, 50)
    first = data.read_parquet(path).iterator()
    loop = iter(first.iter_batches(batch_size=10))
    next(loop), next(loop)
    spoil_group(path, 0)
    spoil_group(path, 1)

    again = shard(data.read_parquet(path), 2, 1)
    again.load_state_dict(first.state_dict())

    assert [row["id"] for row in again.iter_rows()] == list(range(21, 50, 2))


def test_only_a_row_group_is_in_memory_at_a_time(tmp_path: Path) -> None:
    rows = 200_000
    table = pa.table({"x": pa.array(range(rows), pa.int64()), "y": pa.array([0.5] * rows)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=rows // 20)
    size = table.nbytes
    del table
    before = pa.total_allocated_bytes()
    dataset = data.read_parquet(tmp_path)
    peak = 0

    for _ in dataset.iter_batches(batch_size=1000):
        peak = max(peak, pa.total_allocated_bytes() - before)

    assert 0 < peak < size / 4


def test_a_plan_over_files_travels_as_paths(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 0, 50_000, group_rows=10_000)

    sent = cloudpickle.dumps(data.read_parquet(tmp_path).select_columns("id"))

    assert len(sent) < 5_000 < path.stat().st_size
    assert cloudpickle.loads(sent).count() == 50_000


def test_only_wanted_columns_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 2)

    dataset = data.read_parquet(tmp_path, columns=["text"])
    chosen = data.read_parquet(tmp_path).select_columns(["text", "id"])

    assert dataset.take_all() == [{"text": "t0"}, {"text": "t1"}]
    assert chosen.take(1) == [{"text": "t0", "id": 0}]
    assert repr(chosen) == "Dataset(2 rows in 1 Parquet files)"


def test_an_unknown_column_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 2)

    with pytest.raises(ConfigError, match="no column 'z': the columns are 'id', 'text'"):
        data.read_parquet(tmp_path, columns=["z"])
    with pytest.raises(ConfigError, match="no column 'text': the columns are 'id'"):
        data.read_parquet(tmp_path, columns=["id"]).select_columns("text")


def test_folders_named_by_a_value_are_a_column(tmp_path: Path) -> None:
    write(tmp_path / "x=9" / "year=2023" / "a.parquet", 0, 2)
    write(tmp_path / "x=9" / "year=2024" / "a.parquet", 2, 3)

    dataset = data.read_parquet(tmp_path / "x=9")

    assert [(row["id"], row["year"]) for row in dataset.take_all()] == [
        (0, 2023),
        (1, 2023),
        (2, 2024),
    ]
    assert dataset.columns() == ["id", "text", "year"]


def test_a_column_that_some_files_lack_is_none_there(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 1)
    write(tmp_path / "b.parquet", 1, 2, more=[7])

    assert data.read_parquet(tmp_path).take_all() == [
        {"id": 0, "text": "t0", "more": None},
        {"id": 1, "text": "t1", "more": 7},
    ]


def test_files_that_do_not_go_together_are_told(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 1, more=["x"])
    write(tmp_path / "b.parquet", 1, 2, more=[7])

    with pytest.raises(ConfigError, match=r"have incompatible schemas: .*more"):
        data.read_parquet(tmp_path)


@pytest.mark.parametrize("read", [data.read_parquet, data.read_csv, data.read_json])
def test_a_missing_file_is_told_when_the_dataset_is_made(read: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere': there is no such file or folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no file in this folder ends with"):
        read([tmp_path])
    with pytest.raises(ConfigError, match="no path was given"):
        read([])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: write(path, 0, 24, group_rows=12), "now it has 12"),
        (lambda path: write(path, 0, 10), "now the file has other row groups"),
        (lambda path: path.unlink(), "now the file is gone"),
    ],
    ids=["replaced", "shorter", "gone"],
)
def test_a_file_that_changed_meanwhile_is_noticed(
    tmp_path: Path, change: Any, message: str
) -> None:
    path = write(tmp_path / "a.parquet", 0, 20)
    dataset = cloudpickle.loads(cloudpickle.dumps(data.read_parquet(path)))
    change(path)

    with pytest.raises(ConfigError, match=f"row group 0 had 10 rows .* {message}"):
        dataset.take_all()


def test_a_filesystem_can_be_given(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 3)
    (tmp_path / "a.csv").write_text("id\n7\n")

    assert ids(data.read_parquet(str(tmp_path), filesystem=fsspec.filesystem("file"))) == [0, 1, 2]
    assert ids(data.read_parquet(f"file://{tmp_path}")) == [0, 1, 2]
    assert ids(data.read_csv(f"{tmp_path}/a.csv", filesystem=pa.fs.LocalFileSystem())) == [7]


def test_csv_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n0,zero\n1,one\n")
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write("id,name\n2,two\n")

    dataset = data.read_csv(tmp_path)

    assert dataset.take_all() == [
        {"id": 0, "name": "zero"},
        {"id": 1, "name": "one"},
        {"id": 2, "name": "two"},
    ]
    assert dataset.count() == 3
    assert [[row["id"] for row in part.iter_rows()] for part in dataset.streaming_split(2)] == [
        [0],
        [1],
    ]


def test_csv_files_with_numbers_of_different_kinds_go_together(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("x\n2.5\n")

    assert data.read_csv(tmp_path).to_numpy()["x"].tolist() == [1.0, 2.5]


def test_a_csv_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1\n")

    with pytest.raises(ValueError, match="Expected 2 columns, got 1") as caught:
        data.read_csv(tmp_path).take_all()
    assert caught.value.__notes__ == [f"while reading {tmp_path}/a.csv"]


def test_csv_may_be_read_as_arrow_is_told(tmp_path: Path) -> None:
    from pyarrow import csv

    (tmp_path / "a.csv").write_text("id;x\n0;1\n")

    dataset = data.read_csv(tmp_path, parse_options=csv.ParseOptions(delimiter=";"))

    assert cloudpickle.loads(cloudpickle.dumps(dataset)).take_all() == [{"id": 0, "x": 1}]


def test_json_is_an_object_a_line_or_a_list(tmp_path: Path) -> None:
    rows = [{"id": 0, "tags": ["a"]}, {"id": 1, "tags": []}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "b.json").write_text(json.dumps([{"id": 2, "tags": ["b"]}]))

    assert data.read_json(tmp_path).take_all() == [*rows, {"id": 2, "tags": ["b"]}]


def test_json_that_holds_no_rows_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1, 2]")

    with pytest.raises(ConfigError, match=r"a.json: a list of JSON objects is needed"):
        data.read_json(tmp_path).take_all()


def test_shuffled_files_give_every_row_to_one_rank(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 37)
    write(tmp_path / "b.parquet", 37, 60)
    dataset = data.read_parquet(tmp_path).random_shuffle(seed=1).map(lambda row: row)

    parts = [[row["id"] for row in part.iter_rows()] for part in dataset.streaming_split(3)]

    assert sorted(row for part in parts for row in part) == list(range(60))
    assert [len(part) for part in parts] == [20, 20, 20]
    assert parts[0] != sorted(parts[0])

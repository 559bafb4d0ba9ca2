"""Datasets and shards that are pickled for worker processes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from holdfast import data
from holdfast.data.dataset import Dataset, shard

READ = """
import json, sys
import cloudpickle
iterator, state, batches = cloudpickle.loads(sys.stdin.buffer.read())
if state is not None:
    iterator.load_state_dict(state)
rows = []
for number, batch in enumerate(iterator.iter_batches(batch_size=3), 1):
    rows.append([int(one) for one in batch["id"]])
    state = iterator.state_dict()
    if number == batches:
        break
print(json.dumps([rows, state]))
"""


def in_a_process(*given: Any) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", READ],
        input=cloudpickle.dumps(given),
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_a_rank_in_another_process_takes_up_where_one_of_a_larger_group_was_killed() -> None:
    offset = 100
    dataset = data.range(30).random_shuffle().map(lambda row: {"id": row["id"] + offset})
    order = [row["id"] for row in dataset.take_all()]

    killed, state = in_a_process(shard(dataset, 3, 1), None, 2)
    again = data.range(30).random_shuffle().map(lambda row: {"id": row["id"] + offset})
    rest, _ = in_a_process(shard(again, 1, 0), state, None)

    assert killed == [order[1:9:3], order[10:18:3]]
    assert [row for batch in rest for row in batch] == order[18:]


class Squares(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, number: int) -> int:
        return number * number


class Model:
    """Cannot be pickled once it is built."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch


def made(tmp_path: Path) -> dict[str, Dataset]:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("id\n1\n2\n")
    (tmp_path / "a.json").write_text('{"id": 1}\n')
    rows = data.from_items([{"id": 1}, {"id": 2}])
    model = rows.map_batches(Model)
    model.take_all()
    return {
        "items": rows,
        "numpy": data.from_numpy(np.zeros((2, 2))),
        "pandas": data.from_pandas(pd.DataFrame({"id": [1]})),
        "pyarrow": data.from_arrow(pa.table({"id": [1]})),
        "torch": data.from_torch(Squares()),
        "parquet": data.read_parquet(tmp_path),
        "csv": data.read_csv(tmp_path),
        "json": data.read_json(tmp_path),
        "steps": rows.filter(lambda row: True).flat_map(lambda row: [row]).random_shuffle(seed=1),
        "columns": rows.rename_columns({"id": "x"}).select_columns("x").union(rows).limit(3),
        "class": model,
    }


def test_every_dataset_travels(tmp_path: Path) -> None:
    for name, dataset in made(tmp_path).items():
        back = cloudpickle.loads(cloudpickle.dumps(dataset))

        assert repr(back.take_all()) == repr(dataset.take_all()), name


def test_a_shard_travels_in_mid_epoch() -> None:
    iterator = shard(data.range(12), 2, 1)
    next(iter(iterator.iter_batches(batch_size=2)))

    back = cloudpickle.loads(cloudpickle.dumps(iterator))

    assert back.state_dict() == iterator.state_dict()


def test_rows_without_arrays_load_no_library() -> None:
    program = (
        "import sys; from holdfast import data; d = data.from_items([{'a': 1}, {'a': 2}]);"
        "d = d.map(lambda row: row).filter(lambda row: True).rename_columns({'a': 'b'});"
        "assert [r for s in d.streaming_split(2) for r in s.iter_rows()] == [{'b': 1}, {'b': 2}];"
        "print(*sorted({m.partition('.')[0] for m in sys.modules} - sys.stdlib_module_names))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert not {"numpy", "pandas", "pyarrow", "torch"} & set(done.stdout.split())

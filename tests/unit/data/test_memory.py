"""Rows in memory that processes share: one copy, read as if it were one's own."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch.utils.data import TensorDataset

from holdfast import data
from holdfast.data import config
from holdfast.data.dataset import Dataset, shard, shared
from holdfast.data.sources import in_memory
from holdfast.engine.machine import memory_available
from holdfast.errors import ConfigError, StoreFull
from holdfast.objects.refs import LARGE_BYTES

ROWS = 600
WIDE = LARGE_BYTES // ROWS + 8  # bytes of a row, so that all of them are large
DEEP = WIDE // 8 + 1  # numbers of eight bytes in it


class Own:
    """A value that is no number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Own({self.number})"


KINDS: dict[str, Callable[[], Dataset]] = {
    "items": lambda: data.from_items(
        [{"id": n, "x": "e" * WIDE, "y": None, "z": Own(n)} for n in range(ROWS)]
    ),
    "numpy": lambda: data.from_numpy(np.arange(ROWS * DEEP).reshape(ROWS, DEEP), column="id"),
    "objects": lambda: data.from_numpy(
        np.array([str(n) * WIDE for n in range(ROWS)], dtype=object), column="id"
    ),
    "pandas": lambda: data.from_pandas(
        pd.DataFrame({"id": np.arange(ROWS), **{f"c{n}": 1.5 for n in range(DEEP)}})
    ),
    "texts": lambda: data.from_pandas(
        pd.DataFrame({"id": range(ROWS), "x": ["u" * WIDE] * ROWS}, index=map(str, range(ROWS)))
    ),
    "arrow": lambda: data.from_arrow(
        pa.table({"id": range(ROWS), "x": [f"{n}" * WIDE for n in range(ROWS)]})
    ),
    "torch": lambda: data.from_torch(TensorDataset(torch.arange(ROWS * DEEP).reshape(ROWS, DEEP))),
    "steps": lambda: (
        data.from_numpy(np.arange(ROWS * DEEP).reshape(ROWS, DEEP), column="id")
        .random_shuffle(seed=1)
        .union(data.from_numpy(np.zeros((2, DEEP), int), column="id"))
    ),
    "materialized": lambda: data.from_arrow(
        pa.table({"id": range(ROWS), "x": ["w" * WIDE] * ROWS})
    ).materialize(),
}


def looks(rows: list[dict[str, Any]]) -> list[str]:
    """Return what rows look like; torch takes seconds to show a tensor."""
    return [
        str({name: [tensor.tolist() for tensor in value] if isinstance(value, tuple) else value})
        for row in rows
        for name, value in row.items()
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_shared_rows_are_the_rows(kind: str) -> None:
    rows = looks(KINDS[kind]().take_all())

    dataset = KINDS[kind]()
    again = shared(dataset)

    assert len(cloudpickle.dumps(again)) < 10_000
    assert looks(again.take_all()) == rows
    assert looks(dataset.take_all()) == rows, "the dataset itself reads them there too"
    travelled = cloudpickle.loads(cloudpickle.dumps(again))
    assert looks(travelled.take_all()) == rows
    assert looks([*shard(travelled, 3, 1).iter_rows()]) == looks(
        [*shard(dataset, 3, 1).iter_rows()]
    )
    assert again.iterator().state_dict() == KINDS[kind]().iterator().state_dict()


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_that_was_shared_still_travels_by_value(kind: str) -> None:
    """A copy that a user keeps must be good when this process is gone."""
    dataset = KINDS[kind]()
    rows = looks(dataset.take_all())
    shared(dataset)

    packed = cloudpickle.dumps(dataset)
    del dataset

    assert looks(cloudpickle.loads(packed).take_all()) == rows


def test_small_rows_travel_as_they_are() -> None:
    dataset = shared(data.from_numpy(np.arange(10)))

    assert b"holdfast.objects" not in cloudpickle.dumps(dataset)


def test_there_is_one_copy() -> None:
    array = np.zeros((ROWS, DEEP))
    lives = weakref.ref(array)
    dataset = Dataset(in_memory([{"id": array}]))
    del array

    again = [shared(dataset) for _ in range(3)]

    assert lives() is None, "the private copy is not kept beside the shared one"
    assert len({dataset.plan.held.ref for dataset in again}) == 1  # type: ignore[attr-defined]


def test_what_a_table_was_cut_out_of_is_not_shared() -> None:
    table = pa.table({"id": np.arange(ROWS * 1000)})

    dataset = shared(data.from_arrow([table.slice(400 * n, 400) for n in range(ROWS)]))

    ref = dataset.plan.held.ref  # type: ignore[attr-defined]
    assert ref.size_bytes < 2 * 400 * ROWS * 8
    assert dataset.take(2) == [{"id": 0}, {"id": 1}]


def double(row: dict[str, Any]) -> dict[str, Any]:
    value = row["item"][0] if "item" in row else row["id"]
    value *= 2
    return {"id": value}


def double_all(batch: dict[str, Any]) -> dict[str, Any]:
    batch["id"] *= 2
    return batch


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_step_may_write_to_what_it_gets_and_the_next_epoch_does_not_see_it(
    kind: str, *, is_shared: bool
) -> None:
    dataset = shared(KINDS[kind]()) if is_shared else KINDS[kind]()
    iterator = dataset.map(double).iterator()

    epochs = [[int(row["id"][1]) for row in iterator.iter_rows()] for _ in range(3)]

    assert epochs == [[(n * DEEP + 1) * 2 for n in range(ROWS)]] * 3


@pytest.mark.parametrize("form", ["numpy", "pandas"])
@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_a_batch_of_shared_rows_may_be_written_to(kind: str, form: str) -> None:
    iterator = shared(KINDS[kind]()).map_batches(double_all, batch_format=form).iterator()

    epochs = [[row["id"] for row in iterator.iter_rows()] for _ in range(2)]

    assert epochs == [[2 * n for n in range(ROWS)]] * 2


class Normalized(torch.utils.data.Dataset[Any]):
    """A dataset that writes to its own arrays, as such classes do."""

    def __init__(self) -> None:
        self.values = np.arange(ROWS * DEEP, dtype=float).reshape(ROWS, DEEP)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, number: int) -> float:
        row = self.values[number]
        row[0] = -1.0
        return float(row[0])


def test_a_dataset_of_ones_own_may_write_to_its_arrays_and_nobody_else_sees_it() -> None:
    dataset = shared(data.from_torch(Normalized()))

    first, second = (cloudpickle.loads(cloudpickle.dumps(dataset)) for _ in range(2))
    assert first.take(1) == [{"item": -1.0}]

    values = second.plan.items.value.values
    assert values[0, 0] == 0.0
    assert values[5, 1] == 5 * DEEP + 1


def test_what_there_is_no_memory_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.data.memory.memory_available", lambda: LARGE_BYTES // 2)

    with pytest.raises(ConfigError, match=r"take 0\.0 GiB, and this machine has") as caught:
        config.shared({"train": KINDS["numpy"]()})

    assert "read_parquet" in str(caught.value)
    monkeypatch.setattr("holdfast.objects.serial.memory_available", lambda: 1)
    monkeypatch.setattr("holdfast.objects.serial._LARGE", 1)
    with pytest.raises(StoreFull, match="no memory left for an object of type TensorDataset"):
        config.shared({"train": KINDS["torch"]()})


def test_the_memory_that_is_left_is_the_least_of_what_the_system_says(tmp_path: Any) -> None:
    assert memory_available(str(tmp_path)) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 99 kB\nMemAvailable:   10 kB\n")
    assert memory_available(str(tmp_path)) == 10240
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    (tmp_path / "sys/fs/cgroup/memory.current").write_text("5000\n")
    assert memory_available(str(tmp_path)) == 10240
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("7000\n")
    assert memory_available(str(tmp_path)) == 2000


def test_rows_without_arrays_are_shared_without_a_library() -> None:
    program = (
        "import sys; from holdfast import data;"
        "from holdfast.data.dataset import shared;"
        "d = shared(data.from_items([{'a': 'x' * 2000} for _ in range(1000)]));"
        "assert len([r for s in d.streaming_split(2) for r in s.iter_rows()]) == 1000;"
        "print(*sorted({m.partition('.')[0] for m in sys.modules} - sys.stdlib_module_names))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert not {"numpy", "pandas", "pyarrow", "torch"} & set(done.stdout.split())


def test_what_a_user_writes_to_an_array_later_makes_no_difference() -> None:
    for size in (4, ROWS * DEEP):
        array, frame = np.zeros(size), pd.DataFrame({"data": np.zeros(size)})
        datasets = [data.from_numpy(array[::-1]), data.from_pandas(frame)]
        array[:] = 1.0
        frame.loc[:, "data"] = 1.0

        assert [dataset.take(1) for dataset in datasets] == [[{"data": 0.0}]] * 2


def test_a_large_array_is_shared_when_the_dataset_is_made_and_not_by_the_trainer() -> None:
    held = KINDS["numpy"]().plan.held  # type: ignore[attr-defined]

    assert held.shared() is held.shared()
    assert held._blocks == ()  # noqa: SLF001  # nothing is kept beside it


def test_rows_are_there_in_a_fork_and_can_be_shared_by_it() -> None:
    program = (
        "import os, numpy as np, cloudpickle; from holdfast import data;"
        "from holdfast.data.dataset import shared as share;"
        "dataset = data.from_numpy(np.arange(400_000), column='id'); owner = os.getpid();"
        "child = os.fork();"
        "child and os._exit(0);\n"
        "while os.getppid() == owner: os.sched_yield()\n"
        "shared = cloudpickle.loads(cloudpickle.dumps(share(dataset)))\n"
        "is_ours = shared.plan.held.ref._object.owner.pid == os.getpid()\n"
        "print(shared.take(2), dataset.count(), is_ours)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[{'id': 0}, {'id': 1}] 400000 True\n", done.stderr


def test_where_no_more_can_be_shared_a_dataset_is_a_private_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(value: Any) -> Any:
        raise StoreFull("no open files")

    monkeypatch.setattr("holdfast.data.memory.put", full)
    array = np.zeros(ROWS * DEEP)
    dataset = data.from_numpy(array)
    array[:] = 1.0

    assert dataset.take(1) == [{"data": 0.0}]
    with pytest.raises(StoreFull, match="no open files"):
        shared(dataset)


class Locked(torch.utils.data.Dataset[Any]):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> Any:
        return self.lock


@pytest.mark.parametrize(
    "dataset",
    [data.from_items([threading.Lock()]), data.from_torch(Locked())],
    ids=["items", "torch"],
)
def test_what_cannot_travel_is_refused_before_anything_starts(dataset: Dataset) -> None:
    with pytest.raises(
        ConfigError, match="cannot be sent to workers: TypeError: cannot pickle '_thread"
    ):
        config.shared({"train": dataset})

    assert dataset.map(lambda row: row).count() in (1, 2)
    assert len(dataset.map(lambda row: {"lock": row["item"]}).take_all()) in (1, 2)

"""Datasets in real workers: killed, resized, refused, and in memory once for all of them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast import data, train, tune
from holdfast.data import DataConfig, Dataset
from holdfast.errors import ConfigError
from holdfast.objects.refs import LARGE_BYTES
from holdfast.train import (
    Checkpoint,
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
)
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import note
from tests.patience import wait_until

ROWS = 47
EPOCHS = 2
BATCH = 3


def large_rows() -> np.ndarray[Any, Any]:
    """Return rows whose first number is their own, and that are shared for their size."""
    rows = np.zeros((ROWS, LARGE_BYTES // 8 // ROWS + 1))
    rows[:, 0] = np.arange(ROWS)
    return rows


def in_arrow() -> pa.Table:
    flat = large_rows()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])
    return pa.table({"data": lists})


def shared_files() -> list[str]:
    """Return which shared memory this process has mapped, by inode."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split()[4] for line in lines if "holdfast-object" in line})


def consume(config: dict[str, Any]) -> None:
    """Train on every row of some epochs, and note each; die where the config says."""
    notes, context = Path(config["notes"]), train.get_context()
    rank, attempt = context.get_world_rank(), context.get_attempt()
    shard = train.get_dataset_shard("rows")
    step = 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = json.loads(Path(folder, "state.json").read_text())
        shard.load_state_dict(saved["data"])
        step = saved["step"]
    begun_at = step
    note(notes, what="resumed", attempt=attempt, step=step)

    def save() -> None:
        with tempfile.TemporaryDirectory() as folder:
            state = {"data": shard.state_dict(), "step": step}
            Path(folder, "state.json").write_text(json.dumps(state))
            is_saved = step % config["saves_every"] == 0
            train.report({"step": step}, Checkpoint.from_directory(folder) if is_saved else None)

    while (now := shard.state_dict())["epoch"] < EPOCHS:
        # Of unequal shares some end a batch earlier, and all ranks must make the same reports.
        most = -(-(ROWS - now["position"]) // context.get_world_size())
        last = step + -(-most // BATCH)
        for batch in shard.iter_batches(batch_size=BATCH):
            step += 1
            batch["data"][:, 1:] += 1  # it is the loop's own
            ids = batch["data"][:, 0].astype(int).tolist()
            note(notes, what="rows", attempt=attempt, epoch=now["epoch"], step=step, rows=ids)
            if config["kills"].get(str(attempt)) == [rank, step - begun_at]:
                note(notes, what="killed", attempt=attempt)
                os.kill(os.getpid(), signal.SIGKILL)
            save()
        while not config.get("equal", True) and step < last:
            step += 1
            save()
    note(notes, what="mapped", rank=rank, files=shared_files())


def trainer(
    lab: Lab, loop: Any, datasets: dict[str, Any], workers: int, **given: Any
) -> DataParallelTrainer:
    return DataParallelTrainer(
        loop,
        train_loop_config={"notes": str(lab.notes), **given.pop("config", {})},
        datasets=datasets,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(
            name="run",
            storage_path=str(lab.storage),
            failure_config=FailureConfig(
                max_failures=given.pop("max_failures", 0), backoff_max_s=0.0
            ),
        ),
        **given,
    )


def trained_on(lab: Lab) -> dict[int, Counter[int]]:
    """Return the rows of each epoch that count: what came after a checkpoint was done again."""
    counted = lab.noted("rows")
    for resumed in lab.noted("resumed"):
        counted = [
            fact
            for fact in counted
            if fact["attempt"] >= resumed["attempt"] or fact["step"] <= resumed["step"]
        ]
    epochs: dict[int, Counter[int]] = {}
    for fact in counted:
        epochs.setdefault(fact["epoch"], Counter()).update(fact["rows"])
    return epochs


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("equal", [True, False])
def test_killed_and_resized_workers_train_on_every_row_once(
    lab: Lab, seed: int, *, equal: bool
) -> None:
    """Launches with other numbers of workers, each of which loses one by SIGKILL twice."""
    chance = random.Random(seed)
    dataset = data.from_numpy(large_rows()).random_shuffle()
    for workers in [*(chance.randint(1, 4) for _ in range(3)), 2]:
        attempts = max([0, *(fact["attempt"] for fact in lab.noted("resumed"))])
        kills = {
            str(attempts + number): [chance.randrange(workers), chance.randint(1, 4)]
            for number in (1, 2)
        }
        run = trainer(
            lab,
            consume,
            {"rows": dataset},
            workers,
            config={"kills": kills, "saves_every": 2, "equal": equal},
            dataset_config=DataConfig(equal=equal),
            max_failures=1,
        )
        try:
            run.fit()
            break
        except TrainingFailedError:
            continue
    else:
        trainer(
            lab,
            consume,
            {"rows": dataset},
            3,
            config={"kills": {}, "saves_every": 2, "equal": equal},
            dataset_config=DataConfig(equal=equal),
        ).fit()

    assert len(lab.noted("killed")) >= 4
    assert set(trained_on(lab)) == set(range(EPOCHS))
    for epoch, rows in trained_on(lab).items():
        missing = Counter(range(ROWS)) - rows
        assert not rows - Counter(range(ROWS)), f"epoch {epoch} has rows twice"
        assert missing.total() <= (3 if equal else 0)


def test_rows_in_memory_are_there_once_for_all_workers(lab: Lab) -> None:
    config = {"kills": {}, "saves_every": 100}
    made = {"rows": lambda: data.from_arrow(in_arrow())}
    for datasets in ({"rows": data.from_numpy(large_rows())}, made):
        lab.notes.unlink(missing_ok=True)
        lab.storage = lab.storage.with_name(f"{lab.storage.name}-more")
        trainer(lab, consume, datasets, 3, config=config).fit()

        mapped = [fact["files"] for fact in lab.noted("mapped")]
        assert len(mapped) == 3 and len(mapped[0]) == 1
        assert all(files == mapped[0] for files in mapped)


DRIVER = """
import os, sys, numpy as np
from holdfast import data, train
from tests.integration.train.loops import note
from tests.integration.train.test_data import hold, large_rows
from pathlib import Path

note(Path(sys.argv[1]), what="driver", pid=os.getpid())
train.DataParallelTrainer(
    hold,
    train_loop_config={"notes": sys.argv[1]},
    datasets={"rows": data.from_numpy(large_rows())},
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(name="run", storage_path=sys.argv[2]),
).fit()
"""


def hold(config: dict[str, Any]) -> None:
    loop = iter(train.get_dataset_shard("rows").iter_rows())
    next(loop)
    note(Path(config["notes"]), what="holds", pid=os.getpid(), files=shared_files())
    while True:
        signal.pause()


def test_nothing_is_left_of_shared_rows_when_the_driver_is_killed(lab: Lab) -> None:
    command = [sys.executable, "-c", DRIVER, str(lab.notes), str(lab.storage)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as driver:
        wait_until(lambda: len(lab.noted("holds")) == 2, "the workers did not begin")
        driver.kill()
    holders = [fact["pid"] for fact in lab.noted("holds")]

    wait_until(
        lambda: not any(map(psutil.pid_exists, holders)), "workers outlive their driver's data"
    )
    [inode] = {file for fact in lab.noted("holds") for file in fact["files"]}
    # The process that workers were forked from ends after them, and it had the rows in sight, too.
    wait_until(lambda: not holders_of(inode), "somebody still holds the rows")


def holders_of(inode: str) -> list[int]:
    """Return the processes that have memory of ours with this inode mapped."""
    found = []
    for pid in psutil.pids():
        try:
            maps = Path(f"/proc/{pid}/maps").read_text()
        except OSError:  # it has ended, or is somebody else's
            continue
        if any("holdfast-object" in line and inode in line.split() for line in maps.splitlines()):
            found.append(pid)
    return found


def never(config: dict[str, Any]) -> None:
    raise AssertionError("it began")


def test_a_dataset_with_fewer_rows_than_workers_is_refused_before_anything_starts(lab: Lab) -> None:
    with pytest.raises(ConfigError, match=r"datasets\['few'\] has 3 rows for 4 ranks"):
        trainer(lab, never, {"few": data.range(3), "many": data.range(9)}, 4).fit()

    assert not lab.storage.exists()


def test_rows_that_do_not_fit_in_memory_are_refused_before_anything_starts(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: Dataset = data.from_arrow(pa.table({"x": np.zeros(LARGE_BYTES)}))
    monkeypatch.setattr("holdfast.data.memory.memory_available", lambda: LARGE_BYTES)

    with pytest.raises(ConfigError, match="and this machine has"):
        trainer(lab, never, {"rows": rows}, 2).fit()

    assert not lab.storage.exists()


def save_in_the_middle(config: dict[str, Any]) -> None:
    shard = train.get_dataset_shard("rows")
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            shard.load_state_dict(json.loads(Path(folder, "state.json").read_text()))
    loop = iter(shard.iter_rows())
    next(loop)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "state.json").write_text(json.dumps(shard.state_dict()))
        train.report({}, Checkpoint.from_directory(folder))
    raise ValueError("in the middle")


def test_other_files_on_resume_are_named_on_the_card(lab: Lab) -> None:
    files = lab.folder / "files"
    files.mkdir()
    for name in "ab":
        pq.write_table(pa.table({"id": [1, 2, 3]}), files / f"{name}.parquet")
    with pytest.raises(TrainingFailedError, match="in the middle"):
        trainer(lab, save_in_the_middle, {"rows": data.read_parquet(files)}, 1).fit()
    (files / "a.parquet").rename(files / "z.parquet")

    with pytest.raises(TrainingFailedError) as caught:
        trainer(lab, save_in_the_middle, {"rows": data.read_parquet(files)}, 1).fit()

    assert "file 'a.parquet' is not there any more; file 'z.parquet' is new" in str(caught.value)


def test_rows_that_no_rank_gets_are_told_in_the_log_of_one_rank(lab: Lab) -> None:
    config = {"kills": {}, "saves_every": 100}
    trainer(lab, consume, {"rows": data.from_numpy(large_rows())}, 2, config=config).fit()

    logs = [(lab.run / f"logs/attempt-1/rank-{rank}.log").read_text() for rank in range(2)]
    assert logs[0].count("dataset 'rows': 1 of 47 rows are in no rank's share") == 1
    assert "no rank's share" not in logs[1]


def map_rows(config: dict[str, Any]) -> None:
    rows = sum(1 for _ in train.get_dataset_shard("rows").iter_rows())
    note(Path(config["notes"]), what="mapped", rows=rows, files=shared_files())
    train.report({"rows": rows})


def test_the_trials_of_a_study_share_the_rows_of_their_trainer(lab: Lab) -> None:
    datasets = {"rows": data.from_numpy(large_rows())}
    grid = {"train_loop_config": {"a": tune.grid_search([1, 2])}}
    study = tune.RunConfig(name="study", storage_path=str(lab.storage))

    tune.Tuner(trainer(lab, map_rows, datasets, 2), param_space=grid, run_config=study).fit()

    mapped = lab.noted("mapped")
    assert [fact["rows"] for fact in mapped] == [ROWS // 2] * 4
    assert len({tuple(fact["files"]) for fact in mapped}) == 1 and len(mapped[0]["files"]) == 1

"""A training script whose dataset is in memory: `python data_in_memory.py OPTIONS`."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
from marks import mark

import holdfast.data
from holdfast import train

COLUMNS = 16


def loop(options: dict[str, Any]) -> None:
    rank = train.get_context().get_world_rank()
    mark(options["folder"], f"ready-{rank}")
    shard = train.get_dataset_shard("rows")
    total = sum(float(batch["data"].sum()) for batch in shard.iter_batches(batch_size=4096))
    mark(options["folder"], f"read-{rank}", total=total)
    while True:
        time.sleep(1)  # until it is killed


def main(options: dict[str, Any]) -> None:
    rows = max(options["workers"], options["bytes"] // (8 * COLUMNS))
    dataset = holdfast.data.from_numpy(np.ones((rows, COLUMNS)))
    trainer = train.DataParallelTrainer(
        loop,
        train_loop_config=options,
        datasets={"rows": dataset},
        scaling_config=train.ScalingConfig(num_workers=options["workers"]),
        run_config=train.RunConfig(storage_path=f"{options['folder']}/storage", name="run"),
    )
    mark(options["folder"], "fit")
    trainer.fit()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

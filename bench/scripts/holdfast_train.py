"""A training script for Holdfast: `python holdfast_train.py OPTIONS`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import syncs
import tasks
from marks import mark

import holdfast.train.torch
from holdfast import train


class Place:
    def __init__(self) -> None:
        self.rank = train.get_context().get_world_rank()

    def report(self, metrics: Mapping[str, Any], folder: str | None = None) -> None:
        if folder is None:
            train.report(metrics)
        else:
            train.report(metrics, train.Checkpoint.from_directory(folder))

    def report_later(self, metrics: Mapping[str, Any], folder: str) -> Callable[[], object]:
        checkpoint = train.Checkpoint.from_directory(folder)
        mode = train.CheckpointUploadMode.ASYNC
        train.report(metrics, checkpoint, checkpoint_upload_mode=mode)
        return lambda: train.get_all_reported_checkpoints(train.CheckpointConsistencyMode.COMMITTED)

    def keep(self, metrics: Mapping[str, Any], folder: str | None) -> None:
        if folder is None:
            train.report(metrics)
        else:
            self.report_later(metrics, folder)

    def newest(self) -> str | None:
        found = train.get_checkpoint()
        return None if found is None else found.path


def loop(options: dict[str, Any]) -> None:
    if options.get("counts_syncs"):
        syncs.count_in(options["folder"])
    tasks.run(Place(), options)


def main(options: dict[str, Any]) -> None:
    if options.get("counts_syncs"):
        syncs.count_in(options["folder"])
    trainer = holdfast.train.torch.TorchTrainer(
        loop,
        train_loop_config=options,
        scaling_config=train.ScalingConfig(num_workers=options["workers"]),
        run_config=train.RunConfig(
            storage_path=options.get("storage") or f"{options['folder']}/storage",
            name="run",
            failure_config=train.FailureConfig(max_failures=options.get("max_failures", 2)),
            checkpoint_config=train.CheckpointConfig(num_to_keep=2),
        ),
    )
    trainer.fit()
    mark(options["folder"], "over")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

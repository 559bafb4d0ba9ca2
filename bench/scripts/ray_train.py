"""A training script for Ray Train: `python ray_train.py OPTIONS`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import ray
import ray.train
import ray.train.torch
import tasks
from ray import train


class Place:
    def __init__(self) -> None:
        self.rank = train.get_context().get_world_rank()

    def report(self, metrics: Mapping[str, Any], folder: str | None = None) -> None:
        if folder is None:
            train.report(metrics)
        else:
            train.report(metrics, checkpoint=train.Checkpoint.from_directory(folder))

    def report_later(self, metrics: Mapping[str, Any], folder: str) -> Callable[[], object]:
        checkpoint = train.Checkpoint.from_directory(folder)
        mode = train.CheckpointUploadMode.ASYNC
        train.report(metrics, checkpoint=checkpoint, checkpoint_upload_mode=mode)
        return train.get_all_reported_checkpoints

    def keep(self, metrics: Mapping[str, Any], folder: str | None) -> None:
        if folder is None:
            train.report(metrics)
        else:
            self.report_later(metrics, folder)

    def newest(self) -> str | None:
        found = train.get_checkpoint()
        return None if found is None else found.path


def loop(options: dict[str, Any]) -> None:
    tasks.run(Place(), options)


def main(options: dict[str, Any]) -> None:
    ray.init(_temp_dir=options["sockets"])
    trainer = ray.train.torch.TorchTrainer(
        loop,
        train_loop_config=options,
        scaling_config=train.ScalingConfig(num_workers=options["workers"]),
        run_config=train.RunConfig(
            storage_path=f"{options['folder']}/storage",
            name="run",
            failure_config=train.FailureConfig(max_failures=options.get("max_failures", 2)),
            checkpoint_config=train.CheckpointConfig(num_to_keep=2),
        ),
    )
    trainer.fit()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

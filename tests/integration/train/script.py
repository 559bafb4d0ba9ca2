"""A training script as its users write them: the same command begins it and carries it on.

python -m tests.integration.train.script STORAGE_PATH NAME STEPS NOTES
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from holdfast import train
from holdfast.train import DataParallelTrainer, RunConfig, ScalingConfig
from tests.integration.train.loops import STATE, begin, folder_with, note

WORKERS = 2


def next_weights(weights: str, step: int, rank: int) -> str:
    return hashlib.sha256(f"{weights} {step} {rank}".encode()).hexdigest()


def loop(config: dict[str, object]) -> str:
    """Train for some steps. What was acknowledged is noted as soon as it is."""
    notes, rank = Path(str(config["notes"])), train.get_context().get_world_rank()
    weights = ""
    first = begin(notes)
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            weights = Path(folder, f"weights-{rank}").read_text()
    for step in range(first, int(str(config["steps"]))):
        weights = next_weights(weights, step, rank)
        with folder_with({STATE: json.dumps({"step": step}), f"weights-{rank}": weights}) as files:
            train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(files))
        note(notes, what="acknowledged", rank=rank, step=step)
    return weights


def main() -> None:
    storage_path, name, steps, notes = sys.argv[1:]
    result = DataParallelTrainer(
        loop,
        train_loop_config={"steps": int(steps), "notes": notes},
        scaling_config=ScalingConfig(num_workers=WORKERS),
        run_config=RunConfig(storage_path=storage_path, name=name),
    ).fit()
    sys.stdout.write(f"{result.return_value}\n")


if __name__ == "__main__":
    main()

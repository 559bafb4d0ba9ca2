"""A training script without a framework: its weights are digests that follow from each other.

python -m tests.faults.campaign.toy_script '{"storage": …, "notes": …, "steps": …}'
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from holdfast import train
from holdfast.train import (
    CheckpointUploadMode,
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
)
from tests.faults.campaign.deaths import AFTER, BEFORE, LAUNCH, Doom, deeds_done, die_at_deed
from tests.faults.campaign.node_losses import losing_nodes
from tests.integration.train.loops import note

WORKERS = 2
MODES = (CheckpointUploadMode.SYNC, CheckpointUploadMode.ASYNC)


def next_weights(weights: str, step: int, rank: int) -> str:
    return hashlib.sha256(f"{weights} {step} {rank}".encode()).hexdigest()


def weights_after(steps: int, rank: int) -> str:
    """Return what an undisturbed run comes to."""
    weights = ""
    for step in range(steps):
        weights = next_weights(weights, step, rank)
    return weights


def loop(config: dict[str, Any]) -> str:
    """Train for some steps. What was acknowledged is noted as soon as it is."""
    notes, rank = Path(config["notes"]), train.get_context().get_world_rank()
    doom = Doom(config["deaths"], notes, rank)
    doom.strikes(LAUNCH)
    first, weights = 0, ""
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as files:
            first = int(Path(files, "step").read_text()) + 1
            weights = Path(files, f"weights-{rank}").read_text()
    doom.begins(first - 1)
    for step in range(first, config["steps"]):
        doom.next_step()
        weights = next_weights(weights, step, rank)
        folder = Path(config["work"], f"{os.getpid()}-{step}")
        folder.mkdir(parents=True)
        (folder / "step").write_text(str(step))
        (folder / f"weights-{rank}").write_text(weights)
        mode = MODES[step % 2]
        doom.strikes(BEFORE)
        train.report(
            {"step": step}, checkpoint=doom.checkpoint(str(folder)), checkpoint_upload_mode=mode
        )
        doom.strikes(AFTER)
        if mode is CheckpointUploadMode.SYNC:
            note(notes, what="acknowledged", rank=rank, step=step)
    return weights


def main() -> None:
    given = json.loads(sys.argv[1])
    die_at_deed(given.get("deed", 0))
    losses = given.get("node_losses", [])
    result = DataParallelTrainer(
        loop,
        train_loop_config={
            "notes": given["notes"],
            "work": given["work"],
            "steps": given["steps"],
            "deaths": given.get("deaths", []),
        },
        scaling_config=ScalingConfig(num_workers=given.get("workers", WORKERS)),
        run_config=RunConfig(
            storage_path=given["storage"],
            name="run",
            callbacks=losing_nodes(losses, Path(given["notes"]), nodes=2, workers=2),
            failure_config=FailureConfig(
                max_failures=given.get("max_failures", -1), backoff_max_s=0.0
            ),
        ),
    ).fit()
    sys.stdout.write(json.dumps({"weights": result.return_value, "deeds": deeds_done()}))


if __name__ == "__main__":
    main()

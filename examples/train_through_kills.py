"""Two workers train a small model with torch. Kill what you like; the same command carries on.

    python examples/train_through_kills.py runs     train, and keep everything in the folder `runs`
    make demo                                       the same, with somebody who kills it

What makes it survive is in the training function: it saves with `report`, and begins with what
`get_checkpoint` returns. Everything else is plain torch.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, UserCallback
from holdfast.train.torch import TorchTrainer, prepare_data_loader, prepare_model

WORKERS, BATCH = 2, 32


def train_model(config: dict[str, Any]) -> str:
    """Train; every worker runs this, and runs it anew whenever one of them was lost."""
    context = train.get_context()
    torch.manual_seed(0)
    inputs = torch.randn(WORKERS * BATCH * config["steps"], 16)
    data = TensorDataset(inputs, inputs.square().mean(dim=1, keepdim=True))
    loader = prepare_data_loader(DataLoader(data, batch_size=BATCH, shuffle=True))
    model = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 1))
    parallel = prepare_model(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    epochs_done = step = 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder, "state.pt"))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        epochs_done, step = state["epochs_done"], state["step"]
    print(f"process {os.getpid()} begins after step {step}", flush=True)

    for epoch in range(epochs_done + 1, config["epochs"] + 1):
        loader.sampler.set_epoch(epoch)
        for batch, (x, y) in enumerate(loader, 1):
            loss = nn.functional.mse_loss(parallel(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(config["pace_s"])  # stands for a larger model
            step += 1
            where = {"attempt": context.get_attempt(), "epoch": epoch, "step": step}
            with tempfile.TemporaryDirectory() as folder:
                checkpoint = None
                if batch == len(loader) and context.get_world_rank() == 0:
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    state |= {"epochs_done": epoch, "step": step}
                    torch.save(state, Path(folder, "state.pt"))
                    checkpoint = Checkpoint.from_directory(folder)
                train.report({**where, "loss": loss.item()}, checkpoint)
    return fingerprint(model)


def fingerprint(model: nn.Module) -> str:
    """Return a text that differs if a single bit of the weights does."""
    weights = b"".join(one.numpy().tobytes() for one in model.state_dict().values())
    return hashlib.sha256(weights).hexdigest()


class Progress(UserCallback):
    """Says in the driver, where callbacks run, what all ranks have reported."""

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        said = "  ".join(f"{name} {value:.4g}" for name, value in metrics[0].items())
        print(f"{said}  saved" if checkpoint else said, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("storage_path", help="a folder, or s3://bucket/folder, gs://…, az://…")
    parser.add_argument("--name", default="squares", help="of the run; the same one carries on")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=8, help="in an epoch")
    parser.add_argument("--pace", type=float, default=0.06, help="seconds that a step takes longer")
    chosen = parser.parse_args()
    trainer = TorchTrainer(
        train_model,
        train_loop_config={
            "epochs": chosen.epochs,
            "steps": chosen.steps,
            "pace_s": chosen.pace,
        },
        scaling_config=ScalingConfig(num_workers=WORKERS),
        run_config=RunConfig(
            name=chosen.name,
            storage_path=chosen.storage_path,
            failure_config=FailureConfig(max_failures=3),
            callbacks=[Progress()],
        ),
    )
    result = trainer.fit()
    print(f"finished; the weights are {result.return_value}")


if __name__ == "__main__":
    main()

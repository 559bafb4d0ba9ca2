"""A seeded training script with torch: whatever dies, its weights end the same, to the bit.

python -m tests.faults.campaign.torch_script '{"storage": …, "notes": …, "steps": …}'

All that the next step depends on is saved with every step: model, optimizer with its momentum, and
where each rank is in its random numbers, which dropout draws. Which samples a step gets follows
from its number.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import train
from holdfast.control.run import grace
from holdfast.train import CheckpointUploadMode, FailureConfig, RunConfig, ScalingConfig
from holdfast.train.torch import TorchConfig, TorchTrainer
from tests.faults.campaign.deaths import AFTER, BEFORE, LAUNCH, SETUP, Doom, die_at_deed
from tests.faults.campaign.node_losses import losing_nodes
from tests.integration.train.loops import note
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    import torch
    from torch import nn

    from holdfast.worker.context import WorkerContext

WORKERS = 2
SAMPLES, BATCH = 96, 4
MODES = (CheckpointUploadMode.SYNC, CheckpointUploadMode.ASYNC)


# ---------------------------------------------------------------------- in workers


def loop(config: dict[str, Any]) -> str:
    """Train for some steps; return what every bit of model and optimizer comes to."""
    import torch

    notes, rank = Path(config["notes"]), train.get_context().get_world_rank()
    doom = Doom(config["deaths"], notes, rank)
    doom.strikes(LAUNCH)
    model, optimizer = made()
    torch.manual_seed(100 + rank)
    first = load(rank, model, optimizer)
    doom.begins(first - 1)
    for step in range(first, config["steps"]):
        doom.next_step()
        loss = trained(model, optimizer, step, rank)
        folder = saved(Path(config["work"], f"{os.getpid()}-{step}"), rank, step, model, optimizer)
        mode = MODES[step % 2]
        doom.strikes(BEFORE)
        train.report(
            {"step": step, "loss": loss},
            checkpoint=doom.checkpoint(folder),
            checkpoint_upload_mode=mode,
        )
        doom.strikes(AFTER)
        if mode is CheckpointUploadMode.SYNC:
            note(notes, what="acknowledged", rank=rank, step=step)
    return digest(model, optimizer)


def made() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return the model, the same on all ranks, and its optimizer."""
    import torch
    from torch import nn

    from holdfast.train.torch import prepare_model

    torch.manual_seed(1)
    layers = [nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.25), nn.Linear(32, 32), nn.ReLU()]
    model = prepare_model(nn.Sequential(*layers, nn.Dropout(0.25), nn.Linear(32, 1)))
    return model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int) -> float:
    """Make one step and return its loss."""
    import torch
    from torch import nn

    inputs = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(5))
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(step))
    mine = inputs[order[rank * BATCH : (rank + 1) * BATCH]]
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(mine), mine.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


def saved(
    folder: Path, rank: int, step: int, model: nn.Module, optimizer: torch.optim.Optimizer
) -> str:
    """Write what this rank has to save to a new folder, and return it."""
    import torch

    from holdfast.train.torch import rng_state

    folder.mkdir(parents=True)
    torch.save(rng_state(), folder / f"rng-{rank}.pt")
    if rank == 0:
        state = {
            "step": step,
            "model": model.module.state_dict(),  # type: ignore[union-attr]
            "optimizer": optimizer.state_dict(),
        }
        torch.save(state, folder / "state.pt")
    return str(folder)


def load(rank: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Take up the newest checkpoint, if there is one; return the step to begin with."""
    import torch

    from holdfast.train.torch import set_rng_state

    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        state = torch.load(f"{folder}/state.pt", weights_only=True)
        own = torch.load(f"{folder}/rng-{rank}.pt", weights_only=True)
    model.module.load_state_dict(state["model"])  # type: ignore[union-attr]
    optimizer.load_state_dict(state["optimizer"])
    set_rng_state(own)
    return int(state["step"]) + 1


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Return a fingerprint of every bit of the weights and of their momentum."""
    found = hashlib.sha256()
    for weights in model.state_dict().values():
        found.update(weights.numpy().tobytes())
    for kept in optimizer.state.values():
        found.update(kept["momentum_buffer"].numpy().tobytes())
    return found.hexdigest()


# ---------------------------------------------------------------------- in the driver


@dataclass(repr=False)
class DoomedConfig(TorchConfig):
    """A process group that workers may die before they join."""

    deaths: tuple[Any, ...] = ()
    notes: str = ""

    def setups(self) -> Sequence[Callable[[WorkerContext], None]]:
        return (functools.partial(_set_up, self.deaths, self.notes), *super().setups())


def _set_up(deaths: Sequence[Any], notes: str, context: WorkerContext) -> None:
    Doom(deaths, Path(notes), context.place.rank).strikes(SETUP)


def main() -> None:
    given = json.loads(sys.argv[1])
    grace.CAUSE_S = PATIENCE_S  # the machine may be busy, and every death has a cause here
    die_at_deed(given.get("deed", 0))
    notes, deaths = Path(given["notes"]), given.get("deaths", [])
    losses = given.get("node_losses", [])
    result = TorchTrainer(
        loop,
        train_loop_config={
            "notes": str(notes),
            "work": given["work"],
            "steps": given["steps"],
            "deaths": deaths,
        },
        torch_config=DoomedConfig(deaths=tuple(deaths), notes=str(notes)),
        scaling_config=ScalingConfig(num_workers=WORKERS),
        run_config=RunConfig(
            storage_path=given["storage"],
            name="run",
            callbacks=losing_nodes(losses, notes, nodes=2, workers=1),
            failure_config=FailureConfig(max_failures=-1, backoff_max_s=0.0),
        ),
    ).fit()
    sys.stdout.write(json.dumps({"weights": result.return_value}))


if __name__ == "__main__":
    main()

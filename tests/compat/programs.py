"""What the stored runs and studies train; the same for the version that left them and for ours.

Every result follows from config and iteration alone, so that a run that was cut off and went on can
be compared with one that was not.
"""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

from holdfast import train, tune
from holdfast.tune.schedulers import AsyncHyperBandScheduler, PopulationBasedTraining

STEPS = 8
DIES_AFTER = "COMPAT_DIES_AFTER"  # so many saves, in the process that leaves the records


def loss_of(step: int) -> float:
    return 1.0 / step


def _die_if_it_is_time(step: int) -> None:
    """Kill the driver, if this is the process that leaves records behind."""
    if step == int(os.environ.get(DIES_AFTER, "0")):
        os.kill(int(os.environ["COMPAT_DRIVER"]), signal.SIGKILL)
        signal.pause()


def loop(config: dict[str, Any]) -> None:
    rank, done = train.get_context().get_world_rank(), 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            done = int(Path(folder, f"rank-{rank}").read_text())
    for step in range(done + 1, STEPS + 1):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, f"rank-{rank}").write_text(str(step))
            train.report({"loss": loss_of(step), "step": step}, train.Checkpoint(folder))
        mark = Path(config["marks"], "raised")
        if rank == 1 and step == 2 and not mark.exists():
            mark.touch()
            raise ValueError("once")
        if rank == 0:
            _die_if_it_is_time(step)


def trainer(storage: str, name: str, keep: int | None = None) -> train.DataParallelTrainer:
    return train.DataParallelTrainer(
        loop,
        train_loop_config={"marks": storage},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name=name,
            storage_path=storage,
            failure_config=train.FailureConfig(max_failures=2),
            checkpoint_config=train.CheckpointConfig(num_to_keep=keep),
        ),
    )


class Walk(tune.Trainable):
    """Adds its rate at every iteration; its state is the sum."""

    def setup(self, config: dict[str, Any]) -> None:
        self.sum = 0.0

    def step(self) -> dict[str, Any]:
        self.sum += self.config["rate"]
        if self.config.get("fails"):
            raise RuntimeError("always")
        done = self.iteration + 1 >= STEPS
        return {"sum": self.sum, "done": done}

    def save_checkpoint(self, folder: str) -> dict[str, Any]:
        if self.config["rate"] == self.config.get("dies_at"):
            _die_if_it_is_time(self.iteration)
        return {"sum": self.sum}

    def load_checkpoint(self, state: Any) -> None:
        self.sum = state["sum"]


def tuner(storage: str, name: str, scheduler: Any, space: dict[str, Any]) -> tune.Tuner:
    return tune.Tuner(
        Walk,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="sum", mode="max", scheduler=scheduler, max_concurrent_trials=2
        ),
        run_config=tune.RunConfig(
            name=name,
            storage_path=storage,
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1, num_to_keep=2),
        ),
    )


def halved(storage: str) -> tune.Tuner:
    """A study with trials that finish, fail, are stopped, and have not begun when it is cut off."""
    scheduler = AsyncHyperBandScheduler(max_t=STEPS, grace_period=2, reduction_factor=2)
    return tuner(storage, "halved", scheduler, halved_space())


def halved_space() -> dict[str, Any]:
    return {
        "rate": tune.grid_search([3, 5, 4, 6, 2, 1]),
        "fails": tune.sample_from(lambda config: config["rate"] == 5),
        "drawn": tune.uniform(0, 1),
        "dies_at": 6,
    }


def exploiting(storage: str) -> tune.Tuner:
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"noise": tune.uniform(0, 1)},
        quantile_fraction=0.5,
        seed=3,
    )
    space = {"rate": tune.grid_search([1, 2]), "noise": tune.uniform(0, 1), "dies_at": 2}
    return tuner(storage, "exploiting", scheduler, space)


def archived(storage: str) -> tune.Tuner:
    """A study that is done, of which most trials are in archives."""
    return tuner(storage, "archived", None, {"rate": tune.grid_search(list(range(2, 14)))})

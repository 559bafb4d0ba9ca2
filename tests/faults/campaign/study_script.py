"""A study that somebody kills: begun or carried on by the same command.

python -m tests.faults.campaign.study_script FOLDER class|function TRIALS
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.control.study import journal as study_journal
from holdfast.tune.schedulers import ASHAScheduler
from holdfast.tune.search import BasicVariantGenerator

STEPS = 8


def note(folder: str, text: str) -> None:
    """Note something in one write, which is whole or not there."""
    handle = os.open(os.path.join(folder, "notes"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(handle, f"{text}\n".encode())
    os.close(handle)


def may_die(folder: str, trial: str, step: int) -> None:
    """Die now and then, the same trial at the same step only once."""
    if random.Random(f"{trial[-5:]}:{step}").random() < 0.06:
        try:
            os.close(os.open(os.path.join(folder, f"died-{trial}-{step}"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def train(config: dict[str, Any]) -> None:
    """A function that is saved with every report."""
    trial = str(tune.get_context().get_trial_id())
    checkpoint, first = tune.get_checkpoint(), 1
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            first = json.loads(Path(folder, "step.json").read_text())["step"] + 1
    for step in range(first, STEPS + 1):
        note(config["folder"], f"began {trial} {step}")
        may_die(config["folder"], trial, step)
        with tempfile.TemporaryDirectory(dir=config["folder"]) as folder:
            Path(folder, "step.json").write_text(json.dumps({"step": step}))
            saved = tune.Checkpoint.from_directory(folder)
            tune.report({"loss": config["x"] / step}, checkpoint=saved)
            note(config["folder"], f"acknowledged {trial} {step}")
    note(config["folder"], f"done {trial}")


class Model(tune.Trainable):
    """A class that is saved with every step."""

    def setup(self, config: dict[str, Any]) -> None:
        self.done, self.x, self.folder = 0, config["x"], config["folder"]

    def step(self) -> dict[str, Any]:
        note(self.folder, f"began {self.trial_id} {self.done + 1}")
        may_die(self.folder, self.trial_id, self.done + 1)
        self.done += 1
        return {"loss": self.x / self.done, "done": self.done == STEPS, "mine": self.done}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"done": self.done}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.done = checkpoint["done"]


class Witness(tune.Callback):
    """Notes which trials the driver knows to be finished."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def on_trial_complete(
        self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any
    ) -> None:
        note(self.folder, f"finished {trial.trial_id}")


def main(folder: str, kind: str, trials: str) -> None:
    """Begin the study, or go on with it, with a state for every few trials."""
    study_journal.STATE_AFTER, study_journal.ARCHIVE_AFTER = 20, 5
    trainable = train if kind == "function" else Model
    path = f"{folder}/study"
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(
            path, trainable, run_config=tune.RunConfig(callbacks=[Witness(folder)])
        )
    else:
        frequency = 0 if kind == "function" else 1
        tuner = tune.Tuner(
            trainable,
            param_space={"x": tune.uniform(1.0, 2.0), "folder": folder},
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                num_samples=int(trials),
                search_alg=BasicVariantGenerator(random_state=5),
                scheduler=ASHAScheduler(max_t=STEPS, grace_period=2, reduction_factor=2),
            ),
            run_config=tune.RunConfig(
                name="study",
                storage_path=folder,
                failure_config=tune.FailureConfig(max_failures=-1, backoff_max_s=0.0),
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=frequency),
                callbacks=[Witness(folder)],
                verbose=0,
            ),
        )
    results = tuner.fit()
    print(json.dumps({"trials": len(results), "errors": results.num_errors}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])

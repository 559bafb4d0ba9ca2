"""A study for Holdfast or Ray Tune: `python tune_study.py OPTIONS`.

The same for both but for the import, and as a user writes it: in the script that is started.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from contextlib import nullcontext
from typing import Any

from marks import await_mark, mark
from sampler import Profile

OPTIONS = json.loads(sys.argv[1])

if OPTIONS["system"] == "ray":
    import ray
    from ray import tune
else:
    from holdfast import tune

FOLDER = OPTIONS["folder"]
STUDY = "study"
STEP_S = 0.1
STEPS_BEFORE_READY = 3
REACHED_EVERY = 10_000


def trivial(config: dict[str, Any]) -> None:
    mark_first()
    tune.report({"loss": config["x"]})


class Steps(tune.Trainable):  # type: ignore[misc]
    """Counts its steps, and can be saved, restored and used again."""

    def setup(self, config: dict[str, Any]) -> None:
        mark_first()
        self.count, self.x = 0, config["x"]

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"loss": self.x / self.count, "done": self.count >= OPTIONS["steps"]}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        with open(f"{checkpoint_dir}/state.json", "w") as file:
            json.dump({"count": self.count}, file)

    def load_checkpoint(self, checkpoint_dir: Any) -> None:
        with open(f"{checkpoint_dir}/state.json") as file:
            self.count = json.load(file)["count"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True


def cut_off(config: dict[str, Any]) -> None:
    """End at once in one of the first trials; in the others, step and save until killed."""
    if number_of_trial() < OPTIONS["over"]:
        tune.report({"step": 0, "loss": config["x"]})
        return
    found, step = tune.get_checkpoint(), 0
    if found is not None:
        with found.as_directory() as folder, open(f"{folder}/state.json") as file:
            step = json.load(file)["step"] + 1
    if OPTIONS["restores"]:
        mark(FOLDER, "resumed", step=step)
    while True:
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/state.json", "w") as file:
                json.dump({"step": step}, file)
            tune.report({"step": step}, checkpoint=tune.Checkpoint.from_directory(folder))
        step += 1
        if step == STEPS_BEFORE_READY:
            mark(FOLDER, "ready")
        time.sleep(STEP_S)


def in_windows(config: dict[str, Any]) -> None:
    """Do nothing, but only when the bench has opened the window that this trial is in."""
    number = number_of_trial()
    length, size = OPTIONS["length"], OPTIONS["window"]
    if number and (number % REACHED_EVERY == 0 or number == length):
        mark(FOLDER, f"reached-{number}")
    if number >= length:
        window, place = divmod(number - length, size)
        await_mark(FOLDER, f"go-{window}")
        if place == size - 1:
            mark(FOLDER, f"done-{window}")
    tune.report({"loss": config["x"]})


def number_of_trial() -> int:
    """Return the place of this trial among all, from 0; both systems have it in the id."""
    return int(tune.get_context().get_trial_id().rpartition("_")[2])


def mark_first() -> None:
    """Say when the first trial has come to the user's code."""
    if not os.path.exists(f"{FOLDER}/first"):
        mark(FOLDER, "first")


TRAINABLES = {"trials": trivial, "classes": Steps, "restore": cut_off, "grow": in_windows}


def tuner_of(trainable: Any) -> Any:
    """Return the study that the bench asked this script for."""
    if OPTIONS.get("restores"):
        return tune.Tuner.restore(f"{FOLDER}/storage/{STUDY}", trainable)
    task = OPTIONS["task"]
    saves = {"checkpoint_frequency": 1} if task == "classes" else {}
    keeps = {"num_to_keep": 2} if task == "restore" else {}
    return tune.Tuner(
        trainable,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(num_samples=OPTIONS["count"], reuse_actors=OPTIONS["reuses"]),
        run_config=tune.RunConfig(
            name=STUDY,
            storage_path=f"{FOLDER}/storage",
            checkpoint_config=tune.CheckpointConfig(**saves, **keeps),
        ),
    )


def main() -> None:
    if OPTIONS["system"] == "ray":
        ray.init(_temp_dir=OPTIONS["sockets"])
    tuner = tuner_of(TRAINABLES[OPTIONS["task"]])  # which loads what a study needs, as imports do
    profile = Profile()
    with profile.taken() if OPTIONS.get("profiles") else nullcontext():
        begun = time.time()
        results = tuner.fit()
        ended = time.time()
    assert len(results) == OPTIONS["count"] and not results.num_errors, results
    mark(FOLDER, "over", begun=begun, ended=ended, each_us=profile.each_us(OPTIONS["count"]))


if __name__ == "__main__":
    main()

"""Trials that begin with a checkpoint of another study count on from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from tests.integration.tune.old_lab import OldLab, old_lab

__all__ = ["old_lab"]

COUNTED = ("training_iteration", "timesteps_total", "iterations_since_restore")


class Walker(tune.Trainable):
    """Has a constructor of its own; raises once at `config["fails_at"]`."""

    def __init__(self, config: dict[str, Any], logger_creator: Any = None) -> None:
        self.place = 0
        super().__init__(config, logger_creator)
        self.speed = config.get("speed", 1)

    def step(self) -> dict[str, Any]:
        self.place += self.speed
        mark = Path(f"{self.config['notes']}.failed")
        if self.place == self.config.get("fails_at") and not mark.exists():
            mark.touch()
            raise ValueError("fell over")
        return {"place": self.place, "timesteps_this_iter": 10, "time_this_iter_s": 2.0}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"place": self.place}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.place = checkpoint["place"]


def walk(config: dict[str, Any]) -> None:
    """Does the same as a function."""
    place, checkpoint = 0, tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as given:
            place = int(Path(given, "place").read_text())
    folder = Path(config["notes"]).with_name("saved")
    folder.mkdir(exist_ok=True)
    for _ in range(3):
        place += 1
        (folder / "place").write_text(str(place))
        row = {"place": place, "timesteps_this_iter": 10, "time_this_iter_s": 2.0}
        tune.report(row, checkpoint=tune.Checkpoint.from_directory(folder))


def rows(lab: OldLab, name: str) -> list[dict[str, Any]]:
    [path] = (lab.storage / name).glob("*/result.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.req("U-011", "U-073")
def test_a_class_counts_on_from_the_checkpoint_it_begins_with(old_lab: OldLab) -> None:
    [first] = old_lab.run(
        Walker, name="first", stop={"training_iteration": 3}, checkpoint_at_end=True
    ).trials

    old_lab.run(
        Walker,
        {"fails_at": 7},
        name="second",
        stop={"training_iteration": 8},
        restore=first.checkpoint.path,
        checkpoint_freq=2,
        max_failures=1,
    )

    found = rows(old_lab, "second")
    assert [row["place"] for row in found] == [4, 5, 6, 7, 8]
    assert [[row[name] for name in COUNTED] for row in found] == [
        [4, 40, 1],
        [5, 50, 2],
        [6, 60, 3],
        [7, 70, 1],  # of another process, that has begun with the checkpoint of the sixth
        [8, 80, 2],
    ]
    assert [row["time_total_s"] for row in found] == [8.0, 10.0, 12.0, 14.0, 16.0]
    [trial] = tune.ExperimentAnalysis(str(old_lab.storage / "second")).trials
    assert sorted(one["training_iteration"] for _, one in trial.checkpoints) == [4, 6, 8]


@pytest.mark.req("U-011")
def test_a_function_counts_on_from_the_checkpoint_it_begins_with(old_lab: OldLab) -> None:
    [first] = old_lab.run(walk, name="first").trials

    old_lab.run(walk, name="second", restore=first.checkpoint)

    found = rows(old_lab, "second")
    assert [[row["place"], *(row[name] for name in COUNTED)] for row in found] == [
        [4, 4, 40, 1],
        [5, 5, 50, 2],
        [6, 6, 60, 3],
    ]
    assert found[-1]["time_total_s"] == 12.0


def test_what_is_lost_before_its_first_checkpoint_begins_with_the_same_again(
    old_lab: OldLab,
) -> None:
    [first] = old_lab.run(
        Walker, name="first", stop={"training_iteration": 3}, checkpoint_at_end=True
    ).trials

    old_lab.run(
        Walker,
        {"fails_at": 5},
        name="second",
        stop={"training_iteration": 6},
        restore=first.checkpoint.path,
        max_failures=1,
    )

    assert [row["training_iteration"] for row in rows(old_lab, "second")] == [4, 5, 6]


def test_what_was_saved_outside_a_trial_counts_as_well(old_lab: OldLab) -> None:
    trainable = Walker({"notes": str(old_lab.notes)})
    for _ in range(3):
        trainable.train()
    saved = trainable.save(str(old_lab.folder / "by hand"))

    [trial] = old_lab.run(
        Walker, stop={"training_iteration": 5}, restore=str(saved.path), checkpoint_at_end=True
    ).trials

    again = Walker({"notes": str(old_lab.notes)})
    again.restore(trial.checkpoint)
    assert trial.last_result["place"] == 5
    assert again.iteration == 5
    assert again.train()["timesteps_total"] == 60


class Watching(tune.Callback):
    """Keeps what users ask trials for, by what had happened."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, Any]] = {}

    def _look(self, what: str, trial: Any) -> None:
        found = trial.checkpoint
        self.seen[what] = {
            "status": str(trial.status),
            "is_finished": trial.is_finished(),
            "path": trial.path,
            "logdir": trial.logdir,
            "checkpoint": None if found is None else found.path,
            "error_file": trial.error_file,
            "last": trial.last_result.get("place"),
        }

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self._look("start", trial)

    def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self._look("recover", trial)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self._look("complete", trial)
        best = trial.metric_analysis["place"]["max"]
        self.names = (trial.trainable_name, trial.evaluated_params, trial.experiment_tag, best)


def test_callbacks_see_a_trial_as_they_know_it(old_lab: OldLab) -> None:
    watching = Watching()

    old_lab.run(
        Walker,
        {"fails_at": 5, "speed": tune.grid_search([1])},
        stop={"training_iteration": 6},
        checkpoint_freq=2,
        max_failures=1,
        callbacks=[watching],
    )

    [folder] = (str(path.parent) for path in old_lab.study.glob("*/result.json"))
    where = {"path": folder, "logdir": folder}
    fourth, sixth = f"{folder}/checkpoint_000001", f"{folder}/checkpoint_000002"
    failed = {"error_file": f"{folder}/error.txt"}
    assert "fell over" in Path(failed["error_file"]).read_text()
    running = {"status": "RUNNING", "is_finished": False, **where}
    assert watching.seen == {
        "recover": {**running, "status": "PENDING", "checkpoint": fourth, "last": 4, **failed},
        "start": {**running, "checkpoint": fourth, "last": 4, **failed},
        "complete": {
            **where,
            **failed,
            "status": "TERMINATED",
            "is_finished": True,
            "checkpoint": sixth,
            "last": 6,
        },
    }
    assert watching.names == ("Walker", {"speed": 1}, "0_speed=1", 6.0)


@pytest.mark.req("U-001")
def test_what_a_trial_says_of_its_iterations_holds_for_its_files_too(old_lab: OldLab) -> None:
    """A retry takes back the rows after its checkpoint, and those only."""

    class Tens(Walker):
        def step(self) -> dict[str, Any]:
            return {**super().step(), "training_iteration": self.place * 10}

    old_lab.run(
        Tens,
        {"fails_at": 4},
        name="tens",
        stop={"place": 6},
        checkpoint_freq=20,
        max_failures=1,
    )

    found = rows(old_lab, "tens")
    assert [row["training_iteration"] for row in found] == [10, 20, 30, 40, 50, 60]

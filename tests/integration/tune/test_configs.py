"""A config is in memory, wherever a user sees it, what the user made it; in files it is JSON."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.tune import Callback, Tuner
from holdfast.tune.schedulers import PopulationBasedTraining
from tests.integration.train.loops import is_first
from tests.integration.tune.conftest import Lab
from tests.integration.tune.trainables import Counter, load, save

BETAS = [(0.9, number) for number in range(20)]


class Listening(Callback):
    """Notes the configs that callbacks are shown."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.seen.append(dict(trial.config))

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self.seen += [dict(trial.config), result["config"], trial.evaluated_params]


def test_callbacks_see_the_config_and_files_have_it_as_json(lab: Lab) -> None:
    nested = {"layers": {0: 64, (1, 2): [(3, 4)]}, "$odd": {"$tuple": 1}}
    space = {"betas": tune.grid_search([(0.9, 0.99)]), **nested, "make": Counter}
    listening = Listening()
    lab.fit(Counter, space, callbacks=[listening], stop={"training_iteration": 1})

    params, row = (
        json.loads(next(lab.study.glob(f"*/{name}")).read_text())
        for name in ("params.json", "result.json")
    )
    start, config, told, searched = listening.seen
    for one in (start, config, told):
        assert one.pop("make") is not None
        assert one == {"betas": (0.9, 0.99), **nested}
    assert searched == {"betas": (0.9, 0.99)}
    written = {
        "betas": [0.9, 0.99],
        "layers": {"0": 64, "(1, 2)": [[3, 4]]},
        "$odd": {"$tuple": 1},
        "make": "type",
    }
    assert params == row["config"] == written


def test_what_a_scheduler_puts_into_a_config_is_the_same_after_a_restore(lab: Lab) -> None:
    straight = population(lab.folder / "straight", stops=False)
    stopped = population(lab.folder / "stopped", stops=True)

    assert [one for one in straight if one[0] == 1] == [one for one in stopped if one[0] == 1]
    moved = [config["betas"] for number, config in straight if number == 1]
    assert moved[0] == (0.9, 10) and len(moved) > 1
    assert set(moved[1:]) <= {(0.9, 9), (0.9, 11)}, "one place in the list, not drawn anew"


def population(folder: Path, *, stops: bool) -> list[tuple[int, dict[str, Any]]]:
    """Return the configs that two trials were run with, as far as they changed."""
    lab = Lab(folder)
    folder.mkdir()
    explored = folder / "explored"
    driver = os.getpid()

    def train(config: dict[str, Any]) -> None:
        checkpoint, number = tune.get_checkpoint(), int(str(tune.get_context().get_trial_id())[-1])
        for step in range(1 if checkpoint is None else load(checkpoint) + 1, 13):
            if stops and number == 1 and step == 8 and is_first(folder / "is_stopped"):
                os.kill(driver, signal.SIGINT)
            with (folder / "configs").open("a") as file:
                file.write(f"{(number, config)!r}\n")
            save(step, {"score": -number})

    def explore(config: dict[str, Any]) -> dict[str, Any]:
        with explored.open("a") as file:
            file.write(f"{type(config['betas']).__name__} {type(next(iter(config['by'])))}\n")
        return {**config, "more": ((1, 2), {3: (4,)})}

    scheduler = PopulationBasedTraining(
        "training_iteration", "score", "max", perturbation_interval=4, quantile_fraction=0.5,
        resample_probability=0.0, hyperparam_mutations={"betas": BETAS},
        custom_explore_fn=explore, synch=True, seed=1,
    )  # fmt: skip
    space = {"x": tune.grid_search([0, 1]), "betas": (0.9, 10), "by": {0: (1, 2)}}
    search = {"scheduler": scheduler, "reuse_actors": False}
    lab.fit(train, space, tune=search)
    if stops:
        given = tune.TuneConfig(scheduler=scheduler)
        Tuner.restore(str(lab.study), train, tune_config=given).fit()
    assert set(explored.read_text().splitlines()) == {"tuple <class 'int'>"}
    seen = [eval(line) for line in (folder / "configs").read_text().splitlines()]
    changes: list[tuple[int, dict[str, Any]]] = []
    for change in seen:
        if change not in changes:
            changes.append(change)
    return changes

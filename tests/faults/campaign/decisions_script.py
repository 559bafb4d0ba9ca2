"""A study whose drivers are killed one after the other, each after so many events of its journal.

python -m tests.faults.campaign.decisions_script FOLDER PAIR [EVENTS ...]

One trial runs at a time, so that there is one order in which results can come. Every driver is a
process of its own, forked so that it need not load everything anew. It prints how many were killed,
and what was done.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast
from holdfast import tune
from holdfast.control.study.journal import StudyJournal
from holdfast.core.study.events import StudyEvent
from holdfast.tune.schedulers import (
    ASHAScheduler,
    HyperBandForBOHB,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TrialScheduler,
)
from holdfast.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher
from holdfast.tune.search.bohb import TuneBOHB
from holdfast.tune.search.hyperopt import HyperOptSearch
from tests.faults.campaign.study_script import note

STEPS, TRIALS = 4, 6


class Model(tune.Trainable):
    """Says how many steps of training are in it, its own and those of whom it was copied from."""

    def setup(self, config: dict[str, Any]) -> None:
        self.config, self.trained = config, 0

    def step(self) -> dict[str, Any]:
        note(self.config["folder"], f"{number_of(self.trial_id)}:{self.iteration + 1}")
        self.trained += 1
        loss = (self.config["x"] - 0.3) ** 2 + 1 / (self.iteration + 1)
        is_done = self.iteration + 1 >= STEPS
        return {"loss": loss, "trained": self.trained, "done": is_done}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"trained": self.trained}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.trained = checkpoint["trained"]


def less_in_the_middle(view: Any, trial: Any, result: dict[str, Any], scheduler: Any) -> Any:
    return {"CPU": 0.75 if result["training_iteration"] in (2, 3) else 1.0}


def pbt() -> TrialScheduler:
    return PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=1,
        hyperparam_mutations={"x": tune.uniform(0.0, 1.0)},
        quantile_fraction=0.5,
        seed=1,
    )


PAIRS: dict[str, tuple[Callable[[], TrialScheduler], Callable[[], Searcher]]] = {
    "ASHA, hyperopt": (
        lambda: ASHAScheduler(max_t=STEPS, reduction_factor=2, seed=2),
        lambda: HyperOptSearch(n_initial_points=1, random_state_seed=3),
    ),
    "BOHB, bohb": (
        lambda: HyperBandForBOHB(max_t=STEPS, reduction_factor=2),
        lambda: TuneBOHB(bohb_config={"random_fraction": 0}, seed=4),
    ),
    "PBT, random": (pbt, lambda: BasicVariantGenerator(random_state=5)),
    "resources, in batches": (
        lambda: ResourceChangingScheduler(None, less_in_the_middle),
        lambda: ConcurrencyLimiter(
            HyperOptSearch(n_initial_points=1, random_state_seed=6), 2, batch=True
        ),
    ),
}


def study(folder: str, pair: str) -> tune.Tuner:
    path = f"{folder}/study"
    scheduler, searcher = PAIRS[pair]
    config = tune.TuneConfig(
        metric="loss",
        mode="min",
        num_samples=TRIALS,
        search_alg=searcher(),
        scheduler=scheduler(),
    )
    if tune.Tuner.can_restore(path):
        has_function = pair.startswith("resources")  # which is not kept with the study
        return tune.Tuner.restore(path, Model, tune_config=config if has_function else None)
    return tune.Tuner(
        Model,
        param_space={"x": tune.uniform(0.0, 1.0), "folder": folder},
        tune_config=config,
        run_config=tune.RunConfig(
            name="study",
            storage_path=folder,
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2),
            verbose=0,
        ),
    )


def die_after(events: int) -> None:
    """Have this process killed when so many events have happened, and are durable."""
    happen, left = StudyJournal.happen, events

    def counted(self: StudyJournal, event: StudyEvent) -> None:
        nonlocal left
        happen(self, event)
        left -= 1
        if left == 0:
            self.settle()
            os.kill(os.getpid(), signal.SIGKILL)

    StudyJournal.happen = counted  # type: ignore[method-assign]


def drive(folder: str, pair: str, events: int | None) -> bool:
    """Drive the study in another process; whether it was killed."""
    child = os.fork()
    if child == 0:
        if events is not None:
            die_after(events)
        holdfast.init(num_cpus=1)
        results = study(folder, pair).fit()
        os._exit(0 if len(results) == TRIALS and not results.num_errors else 1)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), code
    return code != 0


def told(folder: str) -> dict[str, Any]:
    """Return the order in which steps were first done, and what every trial reported."""
    rows: dict[int, list[Any]] = {}
    for path in Path(folder, "study").glob("*/result.json"):
        found = [json.loads(line) for line in path.read_text().splitlines()]
        which = number_of(found[0]["trial_id"])
        rows[which] = [[row["config"]["x"], row["loss"], row["trained"]] for row in found]
    order = Path(folder, "notes").read_text().split()
    return {"order": list(dict.fromkeys(order)), "rows": sorted(rows.items())}


def number_of(trial_id: str) -> int:
    return int(trial_id.rpartition("_")[2])


def main(folder: str, pair: str, *events: str) -> None:
    kills = sum(drive(folder, pair, int(one)) for one in events)
    drive(folder, pair, None)
    print(json.dumps({"kills": kills, **told(folder)}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])

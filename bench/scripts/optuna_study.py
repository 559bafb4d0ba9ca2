"""The same studies as a plain loop in one process, with Optuna: `python optuna_study.py OPTIONS`.

Checkpoints are what one writes by hand: a file beside the study, put in place by a rename; nothing
of them is synced. Trials are drawn at random, as in the other studies.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import optuna
from marks import mark
from optuna.distributions import IntDistribution
from optuna.storages import InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import create_trial
from sqlalchemy import event
from sqlalchemy.engine import Engine

OPTIONS = json.loads(sys.argv[1])
FOLDER = OPTIONS["folder"]
STUDY = "study"


def storage() -> Any:
    kept = f"{FOLDER}/storage"
    os.makedirs(kept, exist_ok=True)
    match OPTIONS["storage"]:
        case "memory":
            return InMemoryStorage()
        case "sqlite":
            if is_prepared():
                event.listen(Engine, "connect", do_not_sync)
            return RDBStorage(f"sqlite:///{kept}/study.db")
        case "journal":
            return JournalStorage(JournalFileBackend(f"{kept}/study.log"))
        case other:
            raise ValueError(other)


def is_prepared() -> bool:
    """Whether this study is only made so that another process can be measured with it."""
    return OPTIONS["task"] == "restore" and not OPTIONS["restores"]


def do_not_sync(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous=OFF")


def trivial(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", 0, 1)


def steps(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", 0, 1)
    folder = f"{FOLDER}/storage/{trial.number}"
    os.mkdir(folder)
    for count in range(1, OPTIONS["steps"] + 1):
        trial.report(x / count, count)
        with open(f"{folder}/new", "w") as file:
            json.dump({"count": count}, file)
        os.replace(file.name, f"{folder}/checkpoint_{count:06d}.json")
    return x


def cut_off(trial: optuna.Trial) -> float:
    """Go on until killed."""
    trial.suggest_int("n", 0, OPTIONS["count"])
    mark(FOLDER, "resumed" if OPTIONS["restores"] else "ready", step=0)
    while True:
        signal.pause()


def prepare(study: optuna.Study) -> None:
    """Add the trials that are over, and put the others in line."""
    numbers = IntDistribution(0, OPTIONS["count"])
    over = (
        create_trial(params={"n": number}, distributions={"n": numbers}, value=0.0)
        for number in range(OPTIONS["over"])
    )
    study.add_trials(over)
    for number in range(OPTIONS["over"], OPTIONS["count"]):
        study.enqueue_trial({"n": number})


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    begun = time.time()
    study = optuna.create_study(
        study_name=STUDY,
        storage=storage(),
        sampler=optuna.samplers.RandomSampler(),
        load_if_exists=bool(OPTIONS.get("restores")),
    )
    if is_prepared():
        prepare(study)
    objective = {"trials": trivial, "classes": steps, "restore": cut_off}[OPTIONS["task"]]
    study.optimize(objective, n_trials=OPTIONS["count"])
    mark(FOLDER, "over", begun=begun, ended=time.time())


if __name__ == "__main__":
    main()

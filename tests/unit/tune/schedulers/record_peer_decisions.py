"""Writes `peer_decisions.json`: what Ray's own schedulers decide, given the same results as ours.

Run it as a script, with a Python that has Ray 2.60.0. What is kept are the arguments, the seed of
the results, and the decisions, a letter each: continue, stop, or none because it was stopped.
"""

from __future__ import annotations

import importlib
import json
import random
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FILE = Path(__file__).with_name("peer_decisions.json")
CASES: list[dict[str, Any]] = [
    {"kind": "ASHA", "mode": "max", "max_t": 27, "grace_period": 1, "reduction_factor": 3},
    {"kind": "ASHA", "mode": "min", "max_t": 27, "grace_period": 1, "reduction_factor": 3},
    {"kind": "ASHA", "mode": "max", "max_t": 20, "grace_period": 2, "reduction_factor": 2},
    {"kind": "ASHA", "mode": "min", "max_t": 16, "grace_period": 1, "reduction_factor": 4},
    {"kind": "ASHA", "mode": "max", "max_t": 30, "grace_period": 3, "reduction_factor": 2.5},
    {"kind": "median", "mode": "max", "grace_period": 2, "min_samples_required": 3},
    {"kind": "median", "mode": "min", "grace_period": 1, "min_samples_required": 2},
    {"kind": "median", "mode": "max", "grace_period": 4, "min_samples_required": 5},
]
TRIALS, STEPS = 24, 30


def results(seed: int) -> list[tuple[int, int, float]]:
    """Return results of trials, some ahead of others: a number, an iteration, a score each."""
    draw = random.Random(seed)
    goals = [draw.uniform(0, 1) for _ in range(TRIALS)]
    done, rows = [0] * TRIALS, []
    while any(count < STEPS for count in done):
        number = draw.choice([at for at in range(TRIALS) if done[at] < STEPS])
        done[number] += 1
        score = goals[number] * (1 - 0.8 ** done[number]) + draw.gauss(0, 0.05)
        rows.append((number, done[number], round(score, 4)))
    return rows


@dataclass(eq=False)
class Trial:
    """As much of a trial as Ray's schedulers ask for."""

    trial_id: str
    status: str = "RUNNING"


def scheduler_of(case: dict[str, Any]) -> Any:
    schedulers = importlib.import_module("ray.tune.schedulers")
    given = {name: value for name, value in case.items() if name not in ("kind", "seed")}
    kind = {"ASHA": "AsyncHyperBandScheduler", "median": "MedianStoppingRule"}[case["kind"]]
    return getattr(schedulers, kind)(time_attr="training_iteration", metric="score", **given)


def decisions(case: dict[str, Any], rows: list[tuple[int, int, float]]) -> list[str]:
    """Return what becomes of the trial after each result; "" if it had been stopped before."""
    scheduler = scheduler_of(case)
    trials = [Trial(f"t{at}") for at in range(TRIALS)]
    study = SimpleNamespace(
        get_trials=lambda: trials,
        get_live_trials=lambda: [trial for trial in trials if trial.status == "RUNNING"],
    )
    for trial in trials:
        scheduler.on_trial_add(study, trial)
    verdicts = []
    for number, time, score in rows:
        trial = trials[number]
        if trial.status != "RUNNING":
            verdicts.append("")
            continue
        result = {"training_iteration": time, "score": score}
        verdicts.append(scheduler.on_trial_result(study, trial, result))
        if verdicts[-1] == "STOP":
            trial.status = "TERMINATED"
            scheduler.on_trial_complete(study, trial, result)
    return verdicts


def main() -> None:
    recorded = []
    for seed, case in enumerate(CASES):
        rows = results(seed)
        short = "".join({"CONTINUE": "c", "STOP": "s", "PAUSE": "p", "": "-"}[verdict]
                        for verdict in decisions(case, rows))  # fmt: skip
        recorded.append({"case": case, "seed": seed, "decisions": short})
    version = importlib.import_module("ray").__version__
    FILE.write_text(json.dumps({"ray": version, "recorded": recorded}, indent=1) + "\n")


if __name__ == "__main__":
    main()

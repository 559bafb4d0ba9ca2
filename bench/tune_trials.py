"""How many trials that do nothing but report once does a study finish in a second?

What is measured is all that a system does around a trial. Ours is timed from the call of `fit`
until it returns: every transition is durable by then, and the files for people are written. Ray
Tune does the same (as it comes, nothing synced) with fewer trials, because it is slow, and is not
charged for what comes before the first of them. Optuna runs the function in its own process, so a
trial that dies takes the study with it; with SQLite and with its journal, transitions are synced.
The limit is a process that forks for every trial, or once per core, and syncs a line for every
transition by itself: a system that lets trials share a sync may be faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.question import Claim, Question, Setting, at_least, ratio, value
from bench.tune_program import rates

TRIALS, TRIALS_QUICK = 1_000, 100
FEWER = {"ray": 12, "ray-reused": 200, "optuna-sqlite": 300}
ROUNDS_MAX = {  # nothing but an order is claimed
    "ray": 1,
    "ray-reused": 1,
    "optuna-sqlite": 1,
    "optuna-memory": 3,
    "fork": 3,
    "fork-reused": 3,
}


@contextmanager
def question(setting: Setting) -> Iterator[Question]:
    count = TRIALS if setting.scale.slow_peers else TRIALS_QUICK
    side = rates(setting, {"task": "trials", "count": count}, FEWER, ROUNDS_MAX)
    yield Question(
        f"{count:,} trials that report once, every transition durable",
        "trials/s",
        [
            side("holdfast-reused"),
            side("holdfast"),
            side("fork-reused"),
            side("fork"),
            side("optuna-journal"),
            side("optuna-memory"),
            side("optuna-sqlite"),
            side("ray-reused"),
            side("ray"),
        ],
        [
            Claim("trials/s, a process per trial", value("holdfast"), at_least(100)),
            Claim("trials/s, processes reused", value("holdfast-reused"), at_least(1_000)),
            Claim("of a bare fork per trial", ratio("holdfast", "fork")),
            Claim("of bare processes, reused", ratio("holdfast-reused", "fork-reused")),
            Claim("times Optuna's journal, reused", ratio("holdfast-reused", "optuna-journal")),
            Claim("times Optuna's SQLite, reused", ratio("holdfast-reused", "optuna-sqlite")),
            Claim("of Optuna in memory, reused", ratio("holdfast-reused", "optuna-memory")),
            Claim("times Ray Tune", ratio("holdfast", "ray")),
            Claim("times Ray Tune, both reused", ratio("holdfast-reused", "ray-reused")),
        ],
        rounds_max=setting.scale.launches,
    )

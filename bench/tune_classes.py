"""How many trials of a class, ten steps each and a checkpoint after every step, in a second?

As a user writes it: a `Trainable` with `save_checkpoint`, and `checkpoint_frequency=1`. Our
checkpoints are durable before the next step; Ray Tune's are not synced. With Optuna it is a plain
loop in one process that reports each step and puts a file in place by a rename, not synced either.
The limit is bare processes that sync a file, its folder and a line per step.

Ours is timed from the call of `fit` until it returns. Ray Tune has fewer trials, as it is slow,
and is not charged for what comes before the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.question import Claim, Question, Setting, at_least, ratio
from bench.tune_program import rates

TRIALS, TRIALS_QUICK = 200, 20
STEPS = 10
FEWER = {"ray": 6, "ray-reused": 50, "optuna-sqlite": 60, "optuna-journal": 100}
ROUNDS_MAX = {  # few of those that no bar depends on
    "holdfast-reused": 1,
    "ray": 5,
    "ray-reused": 1,
    "optuna-journal": 3,
    "fork": 1,
    "fork-reused": 1,
}


@contextmanager
def question(setting: Setting) -> Iterator[Question]:
    count = TRIALS if setting.scale.slow_peers else TRIALS_QUICK
    options = {"task": "classes", "count": count, "steps": STEPS}
    side = rates(setting, options, FEWER, ROUNDS_MAX)
    yield Question(
        f"{count} trials of a class, {STEPS} steps each, a checkpoint every step",
        "trials/s",
        [
            side("holdfast"),
            side("holdfast-reused"),
            side("fork"),
            side("fork-reused"),
            side("optuna-sqlite"),
            side("optuna-journal"),
            side("ray"),
            side("ray-reused"),
        ],
        [
            Claim("times Ray Tune", ratio("holdfast", "ray"), at_least(20)),
            Claim("times Ray Tune, both reused", ratio("holdfast-reused", "ray-reused")),
            Claim("times Optuna's SQLite", ratio("holdfast", "optuna-sqlite"), at_least(1)),
            Claim("times Optuna's journal", ratio("holdfast", "optuna-journal")),
            Claim("times a process per trial, reused", ratio("holdfast-reused", "holdfast")),
            Claim("of a bare fork per trial", ratio("holdfast", "fork")),
            Claim("of bare processes, reused", ratio("holdfast-reused", "fork-reused")),
        ],
        rounds_max=setting.scale.launches,
        warms_up=not setting.scale.slow_peers,  # else each side is at work for seconds
    )

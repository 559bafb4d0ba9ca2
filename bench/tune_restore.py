"""How long from the command that restores a study to its first resumed step?

A study of many trials that are over and 50 that are not is killed, driver and all. Measured is from
the start of the process that restores it until a trial that was cut off (with Optuna: one that
waited) is in user code and has loaded its checkpoint. Then all of it is killed again, so each round
finds the same. The limit is a process that reads a line per transition, and forks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from bench.question import Claim, Question, Setting, Side, at_least, at_most, ratio, value
from bench.tune_program import SYSTEMS, studying

TRIALS, TRIALS_QUICK = 1_000, 100
LEFT = 50
TIMES_LARGE = 10
SETTLE_S = {"ray": 15.0}  # it writes down how its study stands every few seconds
SETTLE_ELSE_S = 1.0
ROUNDS_MAX = {"ray": 5, "optuna-sqlite": 3, "optuna-journal": 3, "fork": 3}
OTHERS = ("optuna-sqlite", "optuna-journal", "fork")


@contextmanager
def question(setting: Setting) -> Iterator[Question]:
    over = TRIALS if setting.scale.slow_peers else TRIALS_QUICK
    large = TIMES_LARGE * over

    def side(name: str, system: str, trials: int) -> Side:
        return Side(
            name,
            _restorer(system, setting.folder / name, trials),
            left_out=SYSTEMS[system].why_not(setting),
            rounds_max=ROUNDS_MAX.get(name),
        )

    yield Question(
        f"launch, until the first resumed step of a study of {over:,} + {LEFT} trials",
        "s",
        [
            # Processes are reused so that the study is made soon; two trials are resumed anyway.
            side("holdfast", "holdfast-reused", over),
            side("holdfast large", "holdfast-reused", large),
            side("ray", "ray-reused", over),
            *(side(system, system, over) for system in OTHERS),
        ],
        [
            Claim("times faster than Ray Tune", ratio("ray", "holdfast"), at_least(20)),
            Claim(f"s with {large:,} trials", value("holdfast large"), at_most(2)),
            Claim(f"times that, with {large:,} trials", ratio("holdfast large", "holdfast")),
            Claim("times faster than Optuna on SQLite", ratio("optuna-sqlite", "holdfast")),
            Claim("times faster than Optuna's journal", ratio("optuna-journal", "holdfast")),
            Claim("times the limit", ratio("holdfast", "fork")),
        ],
        rounds_max=setting.scale.launches,
    )


def _restorer(system: str, folder: Path, over: int) -> Callable[[], float]:
    """Return what restores a study, which is made, and killed, when that is called first."""
    options = {"task": "restore", "count": over + LEFT, "over": over}

    @cache
    def make() -> None:
        with studying(system, folder, {**options, "restores": False}) as program:
            program.await_marks("ready")
            time.sleep(SETTLE_S.get(system.removesuffix("-reused"), SETTLE_ELSE_S))

    def restore() -> float:
        make()
        (folder / "resumed").unlink(missing_ok=True)
        with studying(system, folder, {**options, "restores": True}) as program:
            [resumed] = program.await_marks("resumed")
            return float(resumed["time"]) - program.begun

    return restore

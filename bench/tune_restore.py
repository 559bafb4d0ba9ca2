"""How long from the command that restores a study to its first resumed step?

A study of many trials that are over and 50 that are not is killed, driver and all. Measured is from
the start of the process that restores it until a trial that was cut off (with Optuna: one that
waited) is in user code and has loaded its checkpoint. Then all of it is killed again, so each round
finds the same. The limit is a process that reads a line per transition, and forks.

Ray Tune overwrites the file that says how its study stands; a kill in the midst of that leaves
nothing to restore. So it is killed right after, and each round is given a copy of what was left.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from bench.program import Program, ProgramFailed
from bench.question import Claim, Question, Setting, Side, at_least, at_most, ratio, value
from bench.tune_program import SYSTEMS, studying

TRIALS, TRIALS_QUICK = 1_000, 100
LEFT = 50
TIMES_LARGE = 10
SETTLE_S = 1.0
RAY_WRITES_S = 120.0  # it writes down how its study stands every few seconds
RAY_STATE = "experiment_state-*.json"
ROUNDS_MAX = {"ray": 5, "optuna-sqlite": 1, "optuna-journal": 1, "fork": 3}
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
    storage, kept = folder / "storage", folder / "kept"
    is_ray = system.startswith("ray")

    @cache
    def make() -> None:
        with studying(system, folder, {**options, "restores": False}) as program:
            program.await_marks("ready")
            time.sleep(SETTLE_S)
            if is_ray:
                _await_written(program, storage)
        if is_ray:
            storage.rename(kept)

    def restore() -> float:
        make()
        (folder / "resumed").unlink(missing_ok=True)
        if is_ray:
            shutil.rmtree(storage, ignore_errors=True)
            shutil.copytree(kept, storage)
        with studying(system, folder, {**options, "restores": True}) as program:
            [resumed] = program.await_marks("resumed")
            return float(resumed["time"]) - program.begun

    return restore


def _await_written(program: Program, storage: Path) -> None:
    """Return when Ray has just written how its study stands, and is not at it again yet."""

    def written() -> float:
        return max((state.stat().st_mtime for state in storage.rglob(RAY_STATE)), default=0.0)

    before, deadline = written(), time.time() + RAY_WRITES_S
    while written() == before or not all(map(_is_whole, storage.rglob(RAY_STATE))):
        if time.time() > deadline:
            raise ProgramFailed(f"Ray has not written its state for {RAY_WRITES_S:.0f} s")
        program.must_run_until(time.time() + 0.01)


def _is_whole(state: Path) -> bool:
    try:
        json.loads(state.read_text())
    except ValueError:
        return False
    return True

"""How much of its time does training make use of when workers keep being killed?

Two workers train a real model (`scripts/steady.py`). From the first step on, one of them gets
SIGKILL at moments that are drawn once, exponentially with a mean of 15 s, and are the same for
every system; a kill that finds its worker dead already hits nobody. When the window is over, what
counts are the steps that the model has behind it: those made after a checkpoint and lost with a
worker do not. The whole are the steps that the system would have made in that window if each had
taken as long as its median step, and nothing else had happened.

How each system saves: Holdfast and Ray Train in the background (`CheckpointUploadMode.ASYNC`),
which both document for loops that must not wait; with torchrun, rank 0 writes a file, syncs and
renames it. How often: the docs of torchrun and of Ray save after each epoch, however long that is,
so all get the interval that loses least with what a save is seen to cost them (Young's formula).
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import statistics
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.peers import why_no_torch
from bench.program import Program, ProgramFailed, running
from bench.question import Claim, Question, Setting, Side, ratio, value
from bench.scripts import marks

WINDOW_S, WINDOW_QUICK_S, WINDOW_LONG_S = 30.0, 15.0, 600.0
MEAN_S, MEAN_QUICK_S, MEAN_LONG_S = 15.0, 6.0, 60.0
SEED = 9  # two kills, as many as are to be expected in such a window
WORKERS = 2
MARGIN_S = 120.0  # for what is on its way back when the window is over
SYSTEMS = ("holdfast", "torchrun", "ray")
COMMANDS = {"torchrun": "torchrun-forever"}
STEPS = "steps"

Kill = tuple[float, int]  # after how many seconds, and which rank


@contextmanager
def question(setting: Setting) -> Iterator[Question]:
    full = setting.scale.slow_peers
    window_s, mean_s = (WINDOW_S, MEAN_S) if full else (WINDOW_QUICK_S, MEAN_QUICK_S)
    yield _question(setting, window_s, mean_s)


@contextmanager
def for_ten_minutes(setting: Setting) -> Iterator[Question]:
    yield _question(setting, WINDOW_LONG_S, MEAN_LONG_S)


def _question(setting: Setting, window_s: float, mean_s: float) -> Question:
    kills = kills_of(SEED, mean_s, window_s)
    numbers = itertools.count()

    def side(system: str) -> Side:
        def measure() -> Mapping[str, float]:
            folder = setting.folder / f"{system}-{next(numbers)}"
            return _train(system, folder, kills, window_s, mean_s)

        slow = setting.why_no_slow("ray") if system == "ray" else ""
        return Side(system, measure, left_out=why_no_torch() or slow)

    return Question(
        f"steps that count in {window_s:.0f} s, {len(kills)} kills of a worker",
        "steps/s",
        [side(system) for system in SYSTEMS],
        [
            *(
                Claim(f"of undisturbed, {system}", ratio(system, f"{system} undisturbed"))
                for system in SYSTEMS
            ),
            *(Claim(f"s from save to save, {name}", value(f"{name} interval")) for name in SYSTEMS),
            *(Claim(f"steps made again, {name}", value(f"{name} redone")) for name in SYSTEMS),
            *(Claim(f"kills that hit, {name}", value(f"{name} kills")) for name in SYSTEMS),
        ],
        rounds_max=1,
        warms_up=False,
    )


def kills_of(seed: int, mean_s: float, window_s: float) -> list[Kill]:
    """Return when whom to kill: the same for the same seed, scaled with the mean."""
    drawn, at, kills = random.Random(seed), 0.0, list[Kill]()
    while (at := at + drawn.expovariate(1 / mean_s)) < window_s:
        kills.append((at, drawn.randrange(WORKERS)))
    return kills


def _train(
    system: str, folder: Path, kills: Sequence[Kill], window_s: float, mean_s: float
) -> Mapping[str, float]:
    options = {"task": "steady", "window_s": window_s, "mean_s": mean_s, "max_failures": -1}
    with running(COMMANDS.get(system, system), folder, options) as program:
        [first] = program.await_marks("first")
        hit = 0
        for at, rank in kills:
            program.must_run_until(first["time"] + at)
            hit += _kill(program, folder, rank)
        left_s = first["time"] + window_s - time.time()
        [counted] = program.await_marks("counted", within_s=left_s + MARGIN_S)
    made = steps_made(folder)
    return {
        "": counted["step"] / window_s,
        "undisturbed": 1 / statistics.median(made),
        "redone": float(len(made) - counted["step"]),
        "interval": counted["interval_s"],
        "kills": float(hit),
    }


def _kill(program: Program, folder: Path, rank: int) -> bool:
    """Kill the worker of this rank; say whether it was alive."""
    alive = marks.read(str(folder), f"alive-{rank}")
    if alive is None or alive["pid"] not in program.pids():
        return False
    os.kill(alive["pid"], signal.SIGKILL)
    return True


def steps_made(folder: Path) -> array[float]:
    """Return the seconds of every step that was made, those that did not count as well."""
    content = (folder / STEPS).read_bytes()
    made = array("d", content[: len(content) // 8 * 8])
    if not made:
        raise ProgramFailed("not a single step was made")
    return made

"""How much work is lost when the driver is killed and the same command is given again?

The training of `goodput`, with the same way to save and the same rule for how often. A few seconds
after its first step the driver gets SIGKILL, and with it everything that it has started; the same
command is given again at once. Counted are the steps that had been made and are to be made again,
in seconds of the median step. Each round goes on with the run of the last one.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.goodput import COMMANDS, MEAN_S, SYSTEMS, steps_made
from bench.peers import why_no_torch
from bench.program import running
from bench.question import Claim, Question, Setting, Side, difference, value
from bench.scripts.marks import first_free

SEED = 7
TRAINS_S = (3.0, 6.0)  # from the first step to the kill: past the first save of any system
FOREVER_S = 1e6
ROUNDS_MAX = 1  # a kill falls anywhere between two saves: this gives an order, not more
SLOW_ROUNDS_MAX = 1


@contextmanager
def question(setting: Setting) -> Iterator[Question]:
    def side(system: str) -> Side:
        slow = system == "ray"
        return Side(
            system,
            _killer(COMMANDS.get(system, system), setting.folder / system),
            left_out=why_no_torch() or (setting.why_no_slow("ray") if slow else ""),
            rounds_max=SLOW_ROUNDS_MAX if slow else None,
        )

    yield Question(
        "work that is done again after SIGKILL of the driver",
        "s",
        [side(system) for system in SYSTEMS],
        [
            Claim("s less than torchrun", difference("torchrun", "holdfast")),
            Claim("s less than Ray Train", difference("ray", "holdfast")),
            *(Claim(f"steps, {system}", value(f"{system} steps")) for system in SYSTEMS),
        ],
        rounds_max=ROUNDS_MAX,
        warms_up=False,
    )


def _killer(system: str, folder: Path) -> Callable[[], Mapping[str, float]]:
    """Return what has a run trained on and killed, and tells what of it was lost."""
    options = {"task": "steady", "window_s": FOREVER_S, "mean_s": MEAN_S, "max_failures": -1}
    drawn = random.Random(SEED)  # the same moments for every system

    def measure() -> Mapping[str, float]:
        folder.mkdir(exist_ok=True)
        begins = first_free(str(folder), "resumed")
        with running(system, folder, options) as program:
            [resumed] = program.await_marks(f"resumed-{begins}")
            already = _count(folder)
            program.must_run_until(resumed["time"] + drawn.uniform(*TRAINS_S))
            os.kill(program.pid, signal.SIGKILL)
            program.kill()
        reached = resumed["step"] + _count(folder) - already
        with running(system, folder, options) as program:
            [again] = program.await_marks(f"resumed-{begins + 1}")
        lost = float(reached - again["step"])
        return {"": lost * statistics.median(steps_made(folder)), "steps": lost}

    return measure


def _count(folder: Path) -> int:
    made = folder / "steps"
    return made.stat().st_size // 8 if made.exists() else 0

"""How long does training stand still when something dies?

`worker`: one of two workers gets SIGKILL, while both are training. Then all ranks must be back in
user code, have loaded the checkpoint of 100 MB with `torch.load`, and have heard of each other.
With torchrun the user keeps a checkpoint on disk by hand. `driver`: the process that the user
started is killed, and everything that it had started; the same command is given again at once.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers import why_no_torch
from bench.program import Program, running
from bench.question import Claim, Question, Setting, Side, at_least, ratio

SYSTEMS = ("holdfast", "torchrun", "ray")
CHECKPOINT_BYTES = 100_000_000
SLOW_ROUNDS_MAX = 5
DRIVER_ROUNDS_MAX = 1  # most of it is the launch, which has a question of its own
SETTLE_S = 0.5  # a death right after the start is another story

Recover = Callable[[str, Path], float]


@contextmanager
def of_a_worker(setting: Setting) -> Iterator[Question]:
    sides = _sides(setting, _kill_worker, slow_rounds_max=SLOW_ROUNDS_MAX)
    yield Question(
        "SIGKILL of a worker, until all are back with 100 MB loaded",
        "s",
        sides,
        [
            Claim("times faster than torchrun", ratio("torchrun", "holdfast"), at_least(5)),
            Claim("times faster than Ray Train", ratio("ray", "holdfast"), at_least(20)),
        ],
        rounds_max=setting.scale.launches,
    )


@contextmanager
def of_the_driver(setting: Setting) -> Iterator[Question]:
    sides = _sides(setting, _kill_driver, slow_rounds_max=1)
    yield Question(
        "SIGKILL of the driver, same command again, until all are back with 100 MB loaded",
        "s",
        sides,
        [
            Claim("times faster than torchrun", ratio("torchrun", "holdfast")),
            Claim("times faster than Ray Train", ratio("ray", "holdfast")),
        ],
        rounds_max=DRIVER_ROUNDS_MAX,
        warms_up=False,
    )


def _sides(setting: Setting, recover: Recover, *, slow_rounds_max: int) -> list[Side]:
    numbers = itertools.count()

    def side(system: str) -> Side:
        slow = system == "ray"
        return Side(
            system,
            lambda: recover(system, setting.folder / f"{system}-{next(numbers)}"),
            left_out=why_no_torch() or (setting.why_no_slow("ray") if slow else ""),
            rounds_max=slow_rounds_max if slow else None,
        )

    return [side(system) for system in SYSTEMS]


def _kill_worker(system: str, folder: Path) -> float:
    with _training(system, folder) as program:
        _, second = program.await_marks("ready-0-0", "ready-1-0")
        time.sleep(SETTLE_S)
        killed = time.time()
        os.kill(second["pid"], signal.SIGKILL)
        return _back(program) - killed


def _kill_driver(system: str, folder: Path) -> float:
    with _training(system, folder) as program:
        program.await_marks("ready-0-0", "ready-1-0")
        time.sleep(SETTLE_S)
        killed = time.time()
        os.kill(program.pid, signal.SIGKILL)
        program.kill()
    with _training(system, folder) as again:
        return _back(again) - killed


@contextmanager
def _training(system: str, folder: Path) -> Iterator[Program]:
    options = {"task": "recover", "size": CHECKPOINT_BYTES}
    with running(system, folder, options) as program:
        yield program


def _back(program: Program) -> float:
    return max(float(one["time"]) for one in program.await_marks("ready-0-1", "ready-1-1"))

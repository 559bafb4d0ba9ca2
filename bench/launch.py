"""How long from the command to training: both of two workers in user code, gloo ready?

The user's script is the same for all (it imports torch at its top) but for the lines that name
the system. A worker is there when an `all_reduce` has come back to it. The limit is a process
that imports torch, forks twice, and joins: nobody who runs torch in processes of their own can be
faster.
`launch-step` goes on to the first step of a model with an optimizer, for which torch loads as
much again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.peers import why_no_torch
from bench.program import running
from bench.question import Claim, Question, Setting, Side, at_least, at_most, ratio

SLOW_ROUNDS_MAX = {"ray": 5, "lightning": 1, "spawn": 1}
STEP_ROUNDS_MAX = 1  # nothing is held against it


@contextmanager
def into_user_code(setting: Setting) -> Iterator[Question]:
    side = _sides(setting, steps=False)
    yield Question(
        "launch, until both of 2 workers are in user code with gloo ready",
        "s",
        [
            side("holdfast"),
            side("fork"),
            side("torchrun"),
            side("spawn"),
            side("lightning", peer="lightning"),
            side("ray", peer="ray"),
        ],
        [
            Claim("times a bare fork", ratio("holdfast", "fork"), at_most(1.5)),
            Claim("times faster than torchrun", ratio("torchrun", "holdfast"), at_least(1.7)),
            Claim("times faster than torch's spawn", ratio("spawn", "holdfast")),
            Claim("times faster than Lightning DDP", ratio("lightning", "holdfast")),
            Claim("times faster than Ray Train", ratio("ray", "holdfast"), at_least(8)),
        ],
        rounds_max=setting.scale.launches,
    )


@contextmanager
def to_the_first_step(setting: Setting) -> Iterator[Question]:
    side = _sides(setting, steps=True)
    yield Question(
        "launch, until 2 workers have made their first step with an optimizer",
        "s",
        [side("holdfast"), side("fork"), side("torchrun")],
        [
            Claim("times a bare fork", ratio("holdfast", "fork")),
            Claim("times faster than torchrun", ratio("torchrun", "holdfast")),
        ],
        rounds_max=STEP_ROUNDS_MAX,
        warms_up=False,
    )


def _sides(setting: Setting, *, steps: bool) -> Callable[..., Side]:
    numbers = itertools.count()

    def launch(system: str) -> float:
        folder = setting.folder / f"{system}-{next(numbers)}"
        with running(system, folder, {"task": "launch", "steps": steps}) as program:
            marked = program.await_marks("ready-0", "ready-1")
            return max(float(one["time"]) for one in marked) - program.begun

    def side(system: str, *, peer: str = "") -> Side:
        return Side(
            system,
            lambda: launch(system),
            left_out=why_no_torch() or (peer and setting.why_no_slow(peer)),
            rounds_max=SLOW_ROUNDS_MAX.get(system),
        )

    return side

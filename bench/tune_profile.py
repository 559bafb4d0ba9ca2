"""What does a trial cost, and whom? The profile behind `tune-trials` and `tune-classes`.

The main thread of the driver is looked at every two milliseconds, and what it does is put down to
a part of Holdfast: microseconds a trial. Processor time is what the kernel counts, for the driver
and for all that it has started. Two cores give two million microseconds of it in a second, so
what everybody takes together says how many trials there could be if nobody ever waited.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bench.question import Claim, Figure, Question, Setting, Side, value
from bench.scripts.sampler import PARTS, WAITING
from bench.tune_program import studying

STUDIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {  # by whom, and what
    "reused": ("holdfast-reused", {"task": "trials", "count": 3_000}),
    "a process each": ("holdfast", {"task": "trials", "count": 500}),
    "classes": ("holdfast", {"task": "classes", "count": 100, "steps": 10}),
}
CPU = ("main thread", "other threads", "workers")
CORES = 2
QUICKER = 20
ROUNDS_MAX = 1


@contextmanager
def question(setting: Setting) -> Iterator[Question]:
    numbers = itertools.count()

    def side(name: str) -> Side:
        system, options = STUDIES[name]
        count = options["count"] // (1 if setting.scale.slow_peers else QUICKER)

        def measure() -> Mapping[str, float]:
            folder = setting.folder / f"{system}-{next(numbers)}"
            given = {**options, "count": count, "profiles": True}
            with studying(system, folder, given) as program:
                [over] = program.await_marks("over")
            each_us: dict[str, float] = over["each_us"]
            return each_us | {"": 1e6 * (over["ended"] - over["begun"]) / count}

        return Side(name, measure, ours=True)

    parts = [*dict.fromkeys(PARTS.values()), WAITING]
    yield Question(
        "what a trial takes in all, while it is looked at",
        "µs",
        [side(name) for name in STUDIES],
        [
            *(Claim(f"µs a trial, reused: {part}", value(f"reused {part}")) for part in parts),
            *(claim for name in STUDIES for claim in _of_processors(name)),
        ],
        rounds_max=ROUNDS_MAX,
        warms_up=False,
    )


def _of_processors(side: str) -> list[Claim]:
    used = [f"{side} CPU, {one}" for one in CPU]
    most = Figure(tuple(used), lambda *each_us: CORES * 1e6 / sum(each_us))
    return [
        *(Claim(f"µs of CPU, {side}: {one}", value(f"{side} CPU, {one}")) for one in CPU),
        Claim(f"trials/s that {CORES} cores could do, {side}", most),
    ]

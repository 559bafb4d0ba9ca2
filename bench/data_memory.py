"""What does a dataset in memory cost a launch, and how many copies of it are there?

Four workers, once with next to no rows and once with 286 MB of them. The launch is from `fit` to
the last worker in user code; memory is what all processes take (PSS) when every worker has read all
its rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from bench.memory import taken
from bench.program import running
from bench.question import MIB, Claim, Figure, Question, Setting, Side, at_most, ratio

WORKERS = 4
DATA_BYTES = 286 * MIB


@contextmanager
def question(setting: Setting) -> Iterator[Question]:
    numbers = itertools.count()
    size = min(DATA_BYTES, 2 * setting.scale.saved_bytes)

    def launch(name: str, size_bytes: int) -> Mapping[str, float]:
        folder = setting.folder / f"{name}-{next(numbers)}"
        with running("data", folder, {"workers": WORKERS, "bytes": size_bytes}) as program:
            [fit] = program.await_marks("fit")
            ready = program.await_marks(*(f"ready-{rank}" for rank in range(WORKERS)))
            program.await_marks(*(f"read-{rank}" for rank in range(WORKERS)))
            launch_s = max(float(one["time"]) for one in ready) - float(fit["time"])
            return {"": launch_s, "memory": taken(program)[""]}

    copies = Figure(
        ("rows memory", "empty memory"),
        lambda full, empty: (full - empty) * MIB / size,
        is_ratio=True,
    )
    yield Question(
        f"launch of {WORKERS} workers with {size // MIB} MB of rows in memory",
        "s",
        [
            Side("rows", lambda: launch("rows", size), ours=True),
            Side("empty", lambda: launch("empty", 0), ours=True),
        ],
        [
            Claim("times a launch without rows", ratio("rows", "empty"), at_most(1.5)),
            Claim("copies in memory", copies, at_most(1.2)),
        ],
        rounds_max=setting.scale.launches,
    )

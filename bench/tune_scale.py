"""Does a trial cost the same, and the driver stay as small, whatever is over already?

Studies of several lengths are open at the same time. In each round, each of them does another
thousand trials that report once, with reused processes, while the others wait; then the memory of
its driver is looked at.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.program import Program
from bench.question import Claim, Question, Setting, Side, at_most, ratio, value
from bench.runner import MORE_ROUNDS
from bench.scripts.marks import mark
from bench.tune_program import studying

EVENTS_PER_TRIAL = 10
WINDOW = 1_000  # trials: a study writes down all that it has become at least once among them
REACHED_EVERY = 10_000  # trials, after which the script marks how far it is
GROWTH_MAX = 1.25  # flat, as far as a machine that others use can show it
MEMORY_MAX_MB = 150


@contextmanager
def question(setting: Setting) -> Iterator[Question]:
    lengths = [events // EVENTS_PER_TRIAL for events in setting.scale.growth]
    windows = setting.scale.launches + 1 + MORE_ROUNDS  # one warms up
    with ExitStack() as studies:
        sides = []
        for length in lengths:
            options = {
                "task": "grow",
                "count": length + windows * WINDOW,
                "length": length,
                "window": WINDOW,
            }
            folder = setting.folder / str(length)
            program = studies.enter_context(studying("holdfast-reused", folder, options))
            for reached in (*range(REACHED_EVERY, length, REACHED_EVERY), length):
                program.await_marks(f"reached-{reached}")
            sides.append(Side(_name(length), _windows(program, folder), ours=True))
        yield Question(
            f"cost of one more trial, among {WINDOW:,}",
            "ms",
            sides,
            _claims(lengths),
            rounds_max=setting.scale.launches,
        )


def _name(length: int) -> str:
    return f"after {length:,}"


def _windows(program: Program, folder: Path) -> Callable[[], Mapping[str, float]]:
    """Return what has a study do one more window of trials; it has waited for that."""
    numbers = itertools.count()

    def measure() -> Mapping[str, float]:
        number = next(numbers)
        opened = time.time()
        mark(str(folder), f"go-{number}")
        [done] = program.await_marks(f"done-{number}")
        each_ms = 1e3 * (float(done["time"]) - opened) / WINDOW
        return {"": each_ms, "memory": _resident_mb(program.pid)}

    return measure


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [size] = [int(line.split()[1]) for line in lines if line.startswith("VmRSS:")]
    return size * 1024 / 1e6


def _claims(lengths: Sequence[int]) -> list[Claim]:
    first, *others = names = [_name(length) for length in lengths]
    # A driver takes more in its first thousands of trials: so many wait for their rows to be
    # written, or to be archived. After those, it is to take no more.
    *_, before, last = names
    return [
        *(
            Claim(
                f"cost {name}, of that {first}",
                ratio(name, first),
                at_most(GROWTH_MAX) if name == last else None,
            )
            for name in others
        ),
        Claim(
            f"memory of the driver {last}, of that {before}",
            ratio(f"{last} memory", f"{before} memory"),
            at_most(GROWTH_MAX),
        ),
        Claim(f"MB of the driver {last}", value(f"{last} memory"), at_most(MEMORY_MAX_MB)),
    ]

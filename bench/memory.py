"""What do two workers that have torch loaded, and nothing to do, take of the machine?

Memory is counted as the kernel shares it out (PSS), over all processes that the script has started:
pages that forked workers have in common count once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.peers import why_no_torch
from bench.program import Program, running
from bench.question import MIB, Claim, Question, Setting, Side, at_most, ratio, value

ROUNDS_MAX = {"ray": 1, "fork": 2}  # it is the same every time
SETTLE_S = 1.0


@contextmanager
def question(setting: Setting) -> Iterator[Question]:
    numbers = itertools.count()

    def idle(system: str) -> Mapping[str, float]:
        folder = setting.folder / f"{system}-{next(numbers)}"
        with running(system, folder, {"task": "idle"}) as program:
            program.await_marks("ready-0", "ready-1")
            time.sleep(SETTLE_S)
            return taken(program)

    def side(system: str) -> Side:
        slow = system == "ray"
        return Side(
            system,
            lambda: idle(system),
            left_out=why_no_torch() or (setting.why_no_slow("ray") if slow else ""),
            rounds_max=ROUNDS_MAX.get(system),
        )

    yield Question(
        "memory of 2 idle workers with torch",
        "MiB",
        [side("holdfast"), side("torchrun"), side("fork"), side("ray")],
        [
            Claim("of torchrun's", ratio("holdfast", "torchrun"), at_most(1)),
            Claim("of a bare fork's", ratio("holdfast", "fork")),
            Claim("of Ray Train's", ratio("holdfast", "ray")),
            *(
                Claim(f"processes, {system}", value(f"{system} processes"))
                for system in ("holdfast", "torchrun", "ray")
            ),
        ],
        rounds_max=setting.scale.launches if setting.scale.slow_peers else 1,
        warms_up=False,  # memory does not depend on what is cached
    )


def taken(program: Program) -> dict[str, float]:
    """Return the memory that all processes of a program take, in MiB, and how many they are."""
    sizes = [size for pid in program.pids() if (size := _pss_bytes(pid)) is not None]
    return {"": sum(sizes) / MIB, "processes": float(len(sizes))}


def _pss_bytes(pid: int) -> int | None:
    """Return a process's share of memory, None if it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    [size] = [int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return size * 1024

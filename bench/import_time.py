"""What does `import holdfast` cost a script that has not used it yet?

In CPU time of the process, which other work on the machine hardly moves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.question import Claim, Question, Setting, Side, at_most, difference

REPEATS = 5  # the least of them: what is above it is the machine's doing


@contextmanager
def question(_: Setting) -> Iterator[Question]:
    yield Question(
        "CPU time of a process that imports holdfast",
        "ms",
        [
            Side("holdfast", lambda: _cpu_ms("import holdfast")),
            Side("checkpoint", lambda: _cpu_ms("from holdfast import Checkpoint"), ours=True),
            Side("bare", lambda: _cpu_ms("pass")),
        ],
        [
            Claim("ms more than a bare interpreter", difference("holdfast", "bare"), at_most(100)),
            Claim("ms more, with Checkpoint loaded", difference("checkpoint", "bare")),
        ],
    )


def _cpu_ms(program: str) -> float:
    return min(_cpu_s(program) for _ in range(REPEATS)) * 1e3


def _cpu_s(program: str) -> float:
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", program], os.environ)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"python -c {program!r} failed")
    return used.ru_utime + used.ru_stime

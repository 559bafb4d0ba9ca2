"""What a process printed when native code crashed in it: the stack of the thread that did.

That is written by faulthandler, with the stacks of all other threads before or after it, ours among
them; in the lines that are shown there is room for one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.core.failure.stacks import OURS, above_the_worker
from holdfast.core.failure.traces import innermost

_FATAL = re.compile(r"^Fatal Python error: ")
_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+")
_FRAMES_MAX = 60


def crash_report(lines: Sequence[str]) -> list[str]:
    """Return the last crash in a log: what it was, and the stack of the thread that crashed.

    That of the main thread, which comes last, if it was a thread without Python. [] for none.
    """
    start = max((at for at, line in enumerate(lines) if _FATAL.match(line)), default=None)
    if start is None:
        return []
    headers = [at for at in range(start, len(lines)) if _THREAD.match(lines[at])]
    if not headers:
        return [lines[start]]
    current = [at for at in headers if lines[at].startswith("Current")]
    first = (current or headers)[-1]
    frames: list[str] = []
    for line in lines[first + 1 :]:
        if not line.startswith("  "):
            break
        frames.append(line)
    return [lines[start], lines[first], *frames[:_FRAMES_MAX]]


def crashed_stack(report: Sequence[str]) -> str:
    """Return the frames of a report, innermost first, without what is below the worker's own."""
    return above_the_worker("\n".join(report[1:]), OURS)


def crash_place(report: Sequence[str]) -> str | None:
    """Return where the user's own code had called what crashed, as `train.py:42`; None if not."""
    return innermost(crashed_stack(report), OURS)[1] if report else None

"""Stacks of workers that hang or crashed: which frames are the worker's own, and which ranks wait.

A worker is a fork, perhaps of the user's own script: below its entry function its stack has the
frames of the process it was forked from, which would mislead a reader who looks for a hang.

Of hung ranks, those that wait for others (in a barrier, an all-reduce, a report) are rarely the
cause; the one that does something else is.

When native code crashes, faulthandler prints the stack of the crashed thread with those of all
other threads before or after it, ours among them; a card has room for one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from holdfast.core.failure.traces import THREAD, innermost

OURS = __file__.rpartition("/core/")[0]  # the folder of this package
_ENTRY = "worker/entry.py"
_FATAL = re.compile(r"^Fatal Python error: ")
_FRAMES_MAX = 60
# Files whose functions wait for other ranks, or for the driver, which waits for other ranks.
_WAITS = re.compile(
    rf"""/torch/distributed/ | /horovod/ | /mpi4py/ | /deepspeed/comm/
      | ^{re.escape(OURS)}/(worker/(conversation|reporting|context)|train/collective)\.py$""",
    re.VERBOSE,
)
# Functions whose name says what is waited for; of several the outermost says most.
_NAMED = re.compile(
    r"barrier|reduce|gather|scatter|broadcast|all_to_all|send|recv|report|init_process_group|wait"
)


def above_worker_entry(stacks: str, ours: str) -> str:
    """Return what faulthandler wrote, with the main thread cut below the worker's entry function.

    `ours` is the folder of this package. Any other text is returned as it is.
    """
    lines = stacks.split("\n")
    main = max((at for at, line in enumerate(lines) if THREAD.match(line)), default=len(lines))
    entry = f'File "{ours.rstrip("/")}/{_ENTRY}", line '
    for at in range(main, len(lines)):
        if lines[at].strip().startswith(entry):
            return "\n".join(lines[:at])
    return stacks


def waits_in(stacks: str) -> str | None:
    """Return the function in which a worker waits for others, None if it does something else."""
    library, _ = innermost(above_worker_entry(stacks, OURS), OURS)
    if not any(_WAITS.search(file) for file, _ in library):
        return None
    named = [name for _, name in library if _NAMED.search(name)]
    return named[-1].rpartition(".")[2] if named else library[-1][1]


def place_of(stacks: str) -> str | None:
    """Return where the user's own code stands in the main thread, as `train.py:42`; None if not."""
    return innermost(above_worker_entry(stacks, OURS), OURS)[1]


def first_to_stop(ranks: Sequence[int], stacks: Mapping[int, str]) -> int:
    """Return the first of these ranks, in their order, that does not wait for another one."""
    not_waiting = [rank for rank in ranks if waits_in(stacks.get(rank, "")) is None]
    return [*not_waiting, *ranks][0]


# ---------------------------------------------------------------------- crashes


def crash_report(lines: Sequence[str]) -> list[str]:
    """Return the last crash in a log: its message, and the stack of the thread that crashed.

    If that thread ran no Python, it is the stack of the main thread, which comes last. [] for none.
    """
    start = max((at for at, line in enumerate(lines) if _FATAL.match(line)), default=None)
    if start is None:
        return []
    headers = [at for at in range(start, len(lines)) if THREAD.match(lines[at])]
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
    """Return the frames of a report, innermost first, cut below the worker's entry function."""
    return above_worker_entry("\n".join(report[1:]), OURS)


def crash_place(report: Sequence[str]) -> str | None:
    """Return where the user's own code called what crashed, as `train.py:42`; None if not."""
    return innermost(crashed_stack(report), OURS)[1] if report else None

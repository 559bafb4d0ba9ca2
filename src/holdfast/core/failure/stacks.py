"""The stacks of workers that hang: what is the worker's own, who waits for others, and where.

A worker is a fork, perhaps of the user's own script: below its first function stands all that stood
in the process it was forked from. A reader who looks for a hang would take that for a part of it.

Of ranks that hang, those that wait for the others (in a barrier, an all-reduce, a report) are
rarely the cause; the one that does something else is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from holdfast.core.failure.traces import innermost

OURS = __file__.rpartition("/core/")[0]  # the folder of this package
_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+")
_ENTRY = "worker/entry.py"
# Files whose functions wait for other ranks, or for the driver, which waits for them.
_WAITS = re.compile(
    rf"""/torch/distributed/ | /horovod/ | /mpi4py/ | /deepspeed/comm/
      | ^{re.escape(OURS)}/(worker/(conversation|reporting|context)|train/collective)\.py$""",
    re.VERBOSE,
)
# Those that say what is waited for, the outermost of several; others only carry it out.
_NAMED = re.compile(
    r"barrier|reduce|gather|scatter|broadcast|all_to_all|send|recv|report|init_process_group|wait"
)


def above_the_worker(stacks: str, ours: str) -> str:
    """Return what faulthandler wrote, of the main thread only what the worker was given to do.

    `ours` is the folder of this package. Of any other text, everything is returned.
    """
    lines = stacks.split("\n")
    main = max((at for at, line in enumerate(lines) if _THREAD.match(line)), default=len(lines))
    entry = f'File "{ours.rstrip("/")}/{_ENTRY}", line '
    for at in range(main, len(lines)):
        if lines[at].strip().startswith(entry):
            return "\n".join(lines[:at])
    return stacks


def waits_in(stacks: str) -> str | None:
    """Return the function in which a worker waits for others, None if it does something else."""
    library, _ = innermost(above_the_worker(stacks, OURS), OURS)
    if not any(_WAITS.search(file) for file, _ in library):
        return None
    named = [name for _, name in library if _NAMED.search(name)]
    return named[-1].rpartition(".")[2] if named else library[-1][1]


def place_of(stacks: str) -> str | None:
    """Return where the user's own code stands in the main thread, as `train.py:42`; None if not."""
    return innermost(above_the_worker(stacks, OURS), OURS)[1]


def outside_first(ranks: Sequence[int], stacks: Mapping[int, str]) -> int:
    """Return who stopped first: of these ranks, in this order, one that waits for nobody."""
    outside = [rank for rank in ranks if waits_in(stacks.get(rank, "")) is None]
    return [*outside, *ranks][0]

"""The stacks of a worker that hangs, without what is not the worker's own.

A worker is a fork, perhaps of the user's own script: below its first function stands all that stood
in the process it was forked from. A reader who looks for a hang would take that for a part of it.
"""

from __future__ import annotations

import re

_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+")
_ENTRY = "worker/entry.py"


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

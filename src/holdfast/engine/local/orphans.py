"""Ends what dead workers left behind, in a process that has adopted it."""

from __future__ import annotations

import os
import time
from collections.abc import Container

from holdfast.engine import processes

PATIENCE_S = 4.0


def end_orphans(workers: Container[int] = (), *, patience_s: float = PATIENCE_S) -> None:
    """Kill every child of this process that is no worker, and wait until it is gone.

    Every worker adopts what its own children leave, so a child of the zygote's that is no worker
    was started by one that is dead. We do not wait for ever: a process that waits for a disk dies
    only when the disk answers.
    """
    began = time.monotonic()
    waited = 0
    while orphans := [pid for pid in processes.children() if pid not in workers]:
        processes.end_untidily(orphans, time.monotonic() - began)
        if any([_is_reaped(pid) for pid in orphans]):  # noqa: C419  # all of them, not the first
            continue
        if time.monotonic() > began + patience_s:
            return
        processes.wait_a_moment(waited)
        waited += 1


def _is_reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return True

"""Faults from outside, so that a script meets them without a line of it being changed.

Python loads this by itself in every interpreter that finds it. What is to happen is in a variable,
as JSON: at which call of which kind a worker dies, or waits for ever, and a folder for marks. A
worker is a process that was forked from the one that loaded this. Only the first one that comes so
far dies; all of them wait.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

FAULT = "HOLDFAST_TEST_FAULT"


def meet(*, event: str, count: int, does: str, marks: str) -> None:
    """Have the workers of this interpreter meet a fault."""
    ours, seen = os.getpid(), 0
    folder = Path(marks)

    def watch(happened: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if happened != event or os.getpid() == ours:
            return
        if event == "os.listdir" and str(*arguments[:1]).startswith("/"):
            return  # by who imports a module, or looks into /proc: not by an example
        seen += 1
        if seen == count and does == "wait":
            (folder / f"{os.getpid()}").touch()
            while True:
                signal.pause()
        elif seen == count and is_first(folder / "died"):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def is_first(mark: Path) -> bool:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


if FAULT in os.environ:
    meet(**json.loads(os.environ[FAULT]))

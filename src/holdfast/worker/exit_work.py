"""What a function has left to the end of its process, done as Python does it, in a bounded time.

Threads that are no daemons, exit handlers, processes of `multiprocessing`, buffers of open files: a
worker ends without any of Python's own ending, which would take long, and take apart memory that it
shares with others. What was there before the worker was forked belongs to others, who do it.
"""

# ruff: noqa: SLF001  # Python has no public way to its own ending

from __future__ import annotations

import atexit
import faulthandler
import gc
import logging
import os
import sys
import threading
import time
import traceback
from _io import _IOBase
from _thread import start_new_thread
from collections.abc import Callable
from io import BufferedRandom, BufferedWriter, FileIO, TextIOBase
from typing import Any

AFTER_RETURN_S = 30.0
AFTER_ERROR_S = 3.0  # others wait for this process to be gone, to begin again
_BACKSTOP_S = 5.0  # more, for code that does not let go of the interpreter
_DEPTH: dict[type, int] = {BufferedWriter: 2, BufferedRandom: 2, FileIO: 3}


class ExitWork:
    """What waits for the end of this process; to be made before the user's code runs in it."""

    def __init__(self) -> None:
        self._handles_before = _handles()

    @property
    def is_left(self) -> bool:
        """Whether there is any, but for open files."""
        if atexit._ncallbacks():
            return True
        main = threading.main_thread()
        if any(one is not main and not one.daemon for one in threading.enumerate()):
            return True
        return bool(getattr(sys.modules.get("multiprocessing.process"), "_children", ()))

    def finish(self, *, after_error: bool) -> None:
        """Do it; a process that is not done with it in time is ended where it stands."""
        patience_s = AFTER_ERROR_S if after_error else AFTER_RETURN_S
        acts = _acts() if self.is_left else []
        if acts or _handles() - self._handles_before:
            start_new_thread(_end_after, (patience_s,))
            faulthandler.dump_traceback_later(patience_s + _BACKSTOP_S, exit=True, file=2)
            for act in [*acts, _close_files, gc.collect]:
                try:
                    act()
                except BaseException:  # noqa: BLE001  # one that fails leaves the others their turn
                    traceback.print_exc()


def _acts() -> list[Callable[[], object]]:
    threads: Any = threading
    acts: list[Callable[[], object]] = [threads._shutdown, atexit._run_exitfuncs]
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        acts.append(util._exit_function)  # which does nothing if it was among the handlers
    return [*acts, logging.shutdown]


def _end_after(patience_s: float) -> None:
    time.sleep(patience_s)
    sys.stderr.write(
        "holdfast: what was left to the end of this process (threads, exit handlers, open files)"
        f" took longer than {patience_s:g} s, and is given up here:\n"
    )
    sys.stderr.flush()
    faulthandler.dump_traceback(2)
    os._exit(0)


def _handles() -> set[str]:
    """Return the numbers of the files that are open; none where that is not to be had."""
    try:
        return set(os.listdir("/proc/self/fd"))
    except OSError:
        return set()


def _close_files() -> None:
    """Close what was opened here, so that nothing stays in a buffer."""
    objects = gc.get_objects()  # without what was there before the fork: that is frozen
    kinds = {kind for kind in set(map(type, objects)) if _IOBase in kind.__mro__}
    files = [one for one in objects if type(one) in kinds]
    # Those first that write to others: text on compressed data on a buffer on a file.
    files.sort(key=lambda file: 0 if isinstance(file, TextIOBase) else _DEPTH.get(type(file), 1))
    for file in files:
        try:
            if file.closed or file in (sys.stdout, sys.stderr) or not file.writable():
                continue
            file.close()
        except Exception as error:  # noqa: BLE001  # of any kind of file, anybody's
            name = getattr(file, "name", file)
            sys.stderr.write(f"holdfast: {name} could not be closed: {error!r}\n")

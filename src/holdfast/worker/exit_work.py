"""Does what Python does at the end of a process, in a bounded time.

That is: wait for threads that are no daemons, run exit handlers, wait for `multiprocessing`, close
open files. A worker ends without Python's own finalization, which takes long and writes to memory
that is shared with other processes. What existed before the worker was forked is left to others.
"""

# ruff: noqa: SLF001  # Python has no public access to its own finalization

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
AFTER_ERROR_S = 3.0  # shorter, because a retry waits for the end of this process
_BACKSTOP_S = 5.0  # more, for code that does not release the interpreter's lock
_DEPTH: dict[type, int] = {BufferedWriter: 2, BufferedRandom: 2, FileIO: 3}


class ExitWork:
    """The exit work of this process; to be made before the user's code runs in it."""

    def __init__(self) -> None:
        self._handles_before = _handles()

    @property
    def is_left(self) -> bool:
        """Whether there is any, apart from open files."""
        if atexit._ncallbacks():
            return True
        main = threading.main_thread()
        if any(thread is not main and not thread.daemon for thread in threading.enumerate()):
            return True
        return bool(getattr(sys.modules.get("multiprocessing.process"), "_children", ()))

    def finish(self, *, after_error: bool) -> None:
        """Do it; a process that takes too long is ended on the spot."""
        patience_s = AFTER_ERROR_S if after_error else AFTER_RETURN_S
        steps = _steps() if self.is_left else []
        if steps or _handles() - self._handles_before:
            start_new_thread(_end_after, (patience_s,))
            faulthandler.dump_traceback_later(patience_s + _BACKSTOP_S, exit=True, file=2)
            for step in [*steps, _close_files, gc.collect]:
                try:
                    step()
                except BaseException:  # noqa: BLE001  # the other steps must still run
                    traceback.print_exc()


def _steps() -> list[Callable[[], object]]:
    threads: Any = threading
    steps: list[Callable[[], object]] = [threads._shutdown, atexit._run_exitfuncs]
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        steps.append(util._exit_function)  # does nothing if it was among the handlers
    return [*steps, logging.shutdown]


def _end_after(patience_s: float) -> None:
    time.sleep(patience_s)
    sys.stderr.write(
        "holdfast: the end of this process (threads, exit handlers, open files)"
        f" took longer than {patience_s:g} s, and is given up here:\n"
    )
    sys.stderr.flush()
    faulthandler.dump_traceback(2)
    os._exit(0)


def _handles() -> set[str]:
    """Return the numbers of the open files; none if the system does not list them."""
    try:
        return set(os.listdir("/proc/self/fd"))
    except OSError:
        return set()


def _close_files() -> None:
    """Close files that were opened in this process, so that nothing stays in a buffer."""
    objects = gc.get_objects()  # objects from before the fork are frozen, so not among them
    kinds = {kind for kind in set(map(type, objects)) if _IOBase in kind.__mro__}
    files = [item for item in objects if type(item) in kinds]
    # Outer layers first: text on compressed data on a buffer on a file.
    files.sort(key=lambda file: 0 if isinstance(file, TextIOBase) else _DEPTH.get(type(file), 1))
    for file in files:
        try:
            if file.closed or file in (sys.stdout, sys.stderr) or not file.writable():
                continue
            file.close()
        except Exception as error:  # noqa: BLE001  # a file of any class may raise anything
            name = getattr(file, "name", file)
            sys.stderr.write(f"holdfast: {name} could not be closed: {error!r}\n")

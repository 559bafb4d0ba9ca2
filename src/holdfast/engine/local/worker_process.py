"""A worker's first and last moments: what is true of its process before any user code runs.

It leads a session of its own, dies with the zygote, adopts what its children leave behind, prints
to its log line by line, says where it stands when asked, and has its own random numbers.

What is the same for all workers is done once, in the zygote (`get_ready`): whatever a worker does
itself, it does to memory that it shares until then, and pays for a copy page by page.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib
import io
import logging
import os
import signal
import sys
import traceback
import weakref
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, NoReturn

from holdfast import settings
from holdfast.core.log_lines import LOG_FORMAT
from holdfast.engine import processes
from holdfast.engine.local import stacks

# Streams that were there before. What goes away is flushed, and should not be before the end; and
# a module that has imported one by name goes on printing to it.
_kept: list[object] = []
_streams: list[object] = []  # those that `new_streams` has made last


# Signals that wait for a worker until it can deal with them. The zygote never does: whoever ends
# it would leave behind what its workers have started.
_HELD_BACK = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    stacks.SIGNAL,
)


class Handles(NamedTuple):
    """What a new worker is handed: the socket and the files it begins with."""

    channel: int
    log: int
    questions: int
    stacks: int

    def close(self) -> None:
        """Let go of them, in a process that they are not for; -1 stands for one that is lost."""
        for handle in self:
            if handle != -1:
                os.close(handle)


def hold_back_signals() -> None:
    """Have the signals that end a worker wait, in this process and in those it forks."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)


def get_ready() -> None:
    """Bring this process, whose signals are held back, to where its workers are to begin.

    To be done again after an import, which may have changed any of it.
    """
    if [sys.stdin, sys.stdout, sys.stderr] != _streams:
        new_streams()
    faulthandler.enable(file=2)
    for number in _HELD_BACK[:-1]:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.basicConfig(format=LOG_FORMAT)
    forget_exit_work()


def forget_exit_work() -> None:
    """Take out what is left to the end of this process: it is no worker's to do.

    What the driver has registered it does itself; what an import registers here is of the kind that
    every process has, and what of it a worker needs is done at its end.
    """
    atexit._clear()  # noqa: SLF001
    finalize: Any = weakref.finalize
    for info in finalize._registry.values():  # noqa: SLF001
        info.atexit = False
    finalize._registered_with_atexit = False  # noqa: SLF001
    vars(logging)["_handlerList"].clear()
    getattr(sys.modules.get("multiprocessing.process"), "_children", set()).clear()


def become_worker(request: dict[str, Any], handles: Handles, parent: int) -> NoReturn:
    """Run the entry point that `request` names, and end this process as it ends."""
    code = 1
    try:
        os.setsid()
        processes.be_signalled_when_parent_ends(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the zygote died before it could be asked to take us along
        processes.adopt_orphans()
        print_to(handles.log)
        stacks.answer_requests(handles.questions, handles.stacks)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)
        settings.add_to_environment(request["environment"])
        limit_threads(request["environment"])
        draw_own_numbers()
        module, _, function = request["entry"].partition(":")
        getattr(importlib.import_module(module), function)(handles.channel)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:  # noqa: BLE001  # the last chance to say what happened
        traceback.print_exc()
    finally:
        for stream in [sys.stdout, sys.stderr, *_kept]:
            with contextlib.suppress(OSError, ValueError):  # a full disk, a closed stream
                if isinstance(stream, io.TextIOWrapper) and stream.fileno() in (1, 2):
                    stream.flush()
        os._exit(code)


def print_to(log: int) -> None:
    """Send what this process prints to the file `log`."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    read_nothing()


def read_nothing() -> None:
    """Make the standard input an empty one."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def new_streams() -> None:
    """Give Python new standard streams on the files 0, 1 and 2, with nothing in them.

    Those before may hold what another process will print, or not be on these files at all. What is
    printed is written line by line: a line that waits in memory would be lost with a worker that
    is killed, and it is the last lines that tell why.
    """
    _kept.extend([sys.stdin, sys.stdout, sys.stderr])
    _kept.extend([sys.__stdin__, sys.__stdout__, sys.__stderr__])
    _streams.clear()
    errors = ("strict", "surrogateescape", "backslashreplace")
    for handle, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(handle, "w" if handle else "r", errors[handle])
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
        _streams.append(stream)


def _stream(handle: int, mode: Literal["r", "w"], errors: str) -> io.TextIOWrapper:
    return open(handle, mode, encoding="utf-8", errors=errors, buffering=1, closefd=False)


def limit_threads(environment: Mapping[str, str]) -> None:
    """Have torch use as many threads as the worker is told to.

    It would read the variable when it is loaded, and in the zygote it has been.
    """
    torch = sys.modules.get("torch")
    if (count := environment.get("OMP_NUM_THREADS", "")).isdecimal() and torch is not None:
        torch.set_num_threads(max(1, int(count)))


def draw_own_numbers() -> None:
    """Bring random numbers to where a new interpreter has them: not the same in every worker.

    Those of Python's own are: its `random` sees to that after every fork.
    """
    if (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.seed()
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "default_generator"):
        torch.default_generator.seed()

"""Sets up the process of a worker before user code runs in it, and ends it afterwards.

A worker leads a session of its own, dies with the zygote, adopts its orphaned descendants, prints
to its log line by line, reports its stacks on request, and has its own random numbers.

What is the same for all workers is done once, in the zygote (`get_ready`): memory that a worker
changes itself is no longer shared and has to be copied, page by page.
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

# Streams that were replaced. They must live on: a stream that is deleted is flushed too early, and
# a module that has imported one by name still prints to it.
_old_streams: list[object] = []
_streams: list[object] = []  # the last ones that `new_streams` has made


# Signals that are blocked until a worker can handle them. The zygote never handles them: ending it
# would leave behind what its workers have started.
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
    """The socket and the files that a new worker gets."""

    channel: int
    log: int
    questions: int
    stacks: int

    def close(self) -> None:
        """Close them, in a process that they are not for; -1 stands for one that was lost."""
        for handle in self:
            if handle != -1:
                os.close(handle)


def hold_back_signals() -> None:
    """Block the signals that end a worker, in this process and in those it forks."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)


def get_ready() -> None:
    """Bring this process, whose signals are blocked, into the state in which workers begin.

    To be called again after every import, which may have changed any of it.
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
    """Remove exit handlers: a worker must not run those of its driver or of the zygote.

    The driver runs its own. Those that an import registers here exist in every process; a worker
    does at its end what it needs of them.
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
            os._exit(1)  # the zygote died before the kernel would have killed us with it
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
    except BaseException:  # noqa: BLE001  # the last chance to print what happened
        traceback.print_exc()
    finally:
        for stream in [sys.stdout, sys.stderr, *_old_streams]:
            with contextlib.suppress(OSError, ValueError):  # a full disk, a closed stream
                if isinstance(stream, io.TextIOWrapper) and stream.fileno() in (1, 2):
                    stream.flush()
        os._exit(code)


def print_to(log: int) -> None:
    """Redirect stdout and stderr of this process to the file `log`."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    read_nothing()


def read_nothing() -> None:
    """Make the standard input empty."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def new_streams() -> None:
    """Give Python new standard streams on the files 0, 1 and 2, with empty buffers.

    The old ones may hold what another process will print, or write to other files. The new ones
    write line by line: a buffered line would be lost with a worker that is killed, and the last
    lines are those that explain why.
    """
    _old_streams.extend([sys.stdin, sys.stdout, sys.stderr])
    _old_streams.extend([sys.__stdin__, sys.__stdout__, sys.__stderr__])
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
    """Make torch use as many threads as OMP_NUM_THREADS says.

    torch reads that when it is loaded, which may have happened in the zygote.
    """
    torch = sys.modules.get("torch")
    if (count := environment.get("OMP_NUM_THREADS", "")).isdecimal() and torch is not None:
        torch.set_num_threads(max(1, int(count)))


def draw_own_numbers() -> None:
    """Seed the random numbers of numpy and torch, so that they differ between workers.

    Python's `random` does that itself after every fork.
    """
    if (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.seed()
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "default_generator"):
        torch.default_generator.seed()

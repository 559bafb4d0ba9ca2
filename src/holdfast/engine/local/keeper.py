"""The keeper: the parent of the zygote, which ends whatever the zygote could not end itself.

A zygote that is killed takes its workers along, by the kernel, and leaves what they have started:
all of that comes to the keeper, which ends it, and then itself. So of driver, zygote and keeper any
two may be killed at once, and nothing is left. It has a name of its own, so that who kills all
processes that are named like a script, or like Python, spares it.

It waits for three signals and does nothing else, so it cannot hang.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import socket
from collections.abc import Callable, Iterator
from typing import NoReturn

from holdfast.engine import processes
from holdfast.engine.local.forking import fork
from holdfast.engine.local.orphans import end_orphans

NAME = b"holdfast-keeper"  # as many letters as the kernel keeps
END = signal.SIGRTMIN + 12  # asks it to kill the zygote; one of those that nobody sends to all
DRIVER_GONE_S = 10.0  # how long a zygote may take to end everything when its driver is gone
UNFIT = 75  # the exit code of a zygote that must not fork, and has not
_SIGNALLED = 128  # is added to the number of the signal that ended the zygote
_WAITS_FOR = (signal.SIGCHLD, signal.SIGCONT, END)


def keep(serve: Callable[[bool], None], driver: int, control: socket.socket) -> NoReturn:
    """Fork a zygote, keep it until it has ended, and end this process with what is known of that.

    Args:
        serve: What the zygote does; it is given whether it is the first one. If it ends this with
            the code `UNFIT`, it is forked once more from here, where nothing of it has happened.
        driver: The parent of this process.
        control: The zygote's line to it, whose end the driver is to see when the zygote ends.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, nobody can be waited for
    processes.adopt_orphans()
    # A signal that wakes who was put to sleep as well.
    processes.be_signalled_when_parent_ends(signal.SIGCONT)
    code = _kept(serve, driver, is_first=True)
    if code == UNFIT:
        code = _kept(serve, driver, is_first=False)
    control.close()
    end_orphans(patience_s=math.inf)
    os._exit(code)


def how_it_ended(code: int) -> str:
    """Return how a zygote ended whose keeper ended with `code`, minus the signal if by one."""
    if code < 0:
        return f"its keeper was killed by signal {-code}"
    if code > _SIGNALLED:
        return f"it was killed by signal {code - _SIGNALLED}"
    return f"it ended with exit code {code}"


def _kept(serve: Callable[[bool], None], driver: int, *, is_first: bool) -> int:
    """Return the exit code of a zygote once it has ended."""
    with _named(NAME) as give_back:  # before there is a zygote that anybody could know us by
        zygote = fork()
        if zygote == 0:
            give_back()
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            serve(is_first)
            os._exit(0)
        while True:
            if os.getppid() == driver:
                heard: object = signal.sigwaitinfo(_WAITS_FOR).si_signo
            else:  # it sees that for itself, if it is not asleep
                processes.wake(zygote)
                in_time = signal.sigtimedwait(_WAITS_FOR, DRIVER_GONE_S)
                heard = END if in_time is None else in_time.si_signo
            if heard == END:
                processes.end([zygote])
            pid, status = os.waitpid(zygote, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else _SIGNALLED - code


@contextlib.contextmanager
def _named(name: bytes) -> Iterator[Callable[[], None]]:
    """Show as `name` meanwhile where processes are listed, not as what this was forked from.

    Gives out what has a fork show as before. The kernel shows what is in the memory where the
    arguments were.
    """
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        arguments = ctypes.string_at(start, end - start) if 0 < start < end else b""
        with open("/proc/self/comm", "rb") as file:
            command = file.read().strip()
    except (OSError, ValueError, IndexError):  # it keeps its name, and that is all
        yield lambda: None
        return
    _write_name(name, start, name[: max(0, len(arguments) - 1)].ljust(len(arguments), b"\0"))
    try:
        yield lambda: _write_name(command, start, arguments)
    finally:
        _write_name(command, start, arguments)


def _write_name(command: bytes, start: int, arguments: bytes) -> None:
    with contextlib.suppress(OSError), open("/proc/self/comm", "wb", buffering=0) as file:
        file.write(command)
    ctypes.memmove(start, arguments, len(arguments))

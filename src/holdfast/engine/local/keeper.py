"""The keeper: the parent of the zygote, which ends whatever the zygote could not end itself.

When a zygote is killed, the kernel kills its workers, but not what they have started. The keeper
adopts and ends that, and then itself. So any two of driver, zygote and keeper may be killed at once
and no process is left. The keeper has a name of its own, so that it survives a `pkill` of all
processes named like the script, or like Python.

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

NAME = b"holdfast-keeper"  # as long as the kernel allows
END = signal.SIGRTMIN + 12  # makes it kill the zygote; no other program sends this one
DRIVER_GONE_S = 10.0  # how long a zygote may take to end everything when its driver is gone
UNFIT = 75  # the exit code of a zygote that must not fork, and has not
_SIGNALLED = 128  # added to the number of the signal that ended the zygote
_WAITS_FOR = (signal.SIGCHLD, signal.SIGCONT, END)


def keep(serve: Callable[[bool], None], driver: int, control: socket.socket) -> NoReturn:
    """Fork a zygote, wait for its end, and exit with a code from which `how_it_ended` tells how.

    Args:
        serve: What the zygote does, given whether it is the first one. If it exits with `UNFIT`,
            another one is forked from this process, which is as it was before the first.
        driver: The parent of this process.
        control: The zygote's socket, closed here so that the driver sees when the zygote ends.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, `waitpid` does not work
    processes.adopt_orphans()
    # SIGCONT, because it also wakes a process that was put to sleep.
    processes.be_signalled_when_parent_ends(signal.SIGCONT)
    code = _run_zygote(serve, driver, is_first=True)
    if code == UNFIT:
        code = _run_zygote(serve, driver, is_first=False)
    control.close()
    processes.end_orphans(patience_s=math.inf)
    os._exit(code)


def how_it_ended(code: int) -> str:
    """Return how a zygote ended, from its keeper's exit code, or minus its signal."""
    if code < 0:
        return f"its keeper was killed by signal {-code}"
    if code > _SIGNALLED:
        return f"it was killed by signal {code - _SIGNALLED}"
    return f"it ended with exit code {code}"


def _run_zygote(serve: Callable[[bool], None], driver: int, *, is_first: bool) -> int:
    """Fork a zygote, and return its exit code once it has ended."""
    with _named(NAME) as give_back:  # before there is a zygote to be killed together with
        zygote = fork()
        if zygote == 0:
            give_back()
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            serve(is_first)
            os._exit(0)
        while True:
            if os.getppid() == driver:
                heard: object = signal.sigwaitinfo(_WAITS_FOR).si_signo
            else:  # the driver is gone; the zygote notices that itself, once it is awake
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
    """Change the name and arguments that lists of processes show for this one.

    Yields a function by which a fork gets the old ones back. The kernel shows what is in the memory
    where the arguments were.
    """
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        arguments = ctypes.string_at(start, end - start) if 0 < start < end else b""
        with open("/proc/self/comm", "rb") as file:
            command = file.read().strip()
    except (OSError, ValueError, IndexError):  # it goes by its old name then
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

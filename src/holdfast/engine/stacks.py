"""Where the threads of a worker stand, whatever it does: asked by a signal, written by a handler.

The handler is faulthandler's, in C: it needs neither the interpreter's lock nor the worker's help,
so a deadlock and a loop that never lets go of the lock are seen as they are. It writes to a file
in memory that the driver made, has no name, and is gone with the last who holds it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from holdfast.engine.processes import GONE, facts, wait_a_moment

SIGNAL = signal.SIGRTMIN + 11  # one of those nobody uses: what it does by default is kill
_BIT = 1 << (SIGNAL - 1)
_ASLEEP = {
    "T": "the process was put to sleep by a signal (SIGSTOP or SIGTSTP); SIGCONT wakes it",
    "t": "the process is held by a debugger",
}


def answer_requests(handle: int) -> None:
    """From now on, write this process's stacks to the file `handle` whenever asked."""
    faulthandler.register(SIGNAL, file=handle, all_threads=True, chain=False)


def new_file() -> int:
    """Return a file without a name, to which what is written is added at the end."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("holdfast-stacks")
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    _append_only(handle)
    return handle


def _append_only(handle: int) -> None:
    import fcntl

    fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | os.O_APPEND)


@dataclass(slots=True)
class _Asked:
    """One worker that was asked and has not answered."""

    pid: int
    handle: int
    deaf: set[str] = field(default_factory=set)  # threads that hold the signal back anyway


def collect(
    workers: Mapping[int, tuple[int, int]], ask: Callable[[int], None], timeout_s: float
) -> dict[int, str]:
    """Return the stacks of workers by rank, or why there are none.

    Args:
        workers: Process and stack file by rank.
        ask: Sends `SIGNAL` to a process.
        timeout_s: How long to wait for all of them together.
    """
    deadline = time.monotonic() + timeout_s
    found: dict[int, str] = {}
    asked: dict[int, _Asked] = {}
    for rank, (pid, handle) in workers.items():
        if (reason := _cannot_answer(pid)) is not None:
            found[rank] = reason
            continue
        os.ftruncate(handle, 0)
        asked[rank] = _Asked(pid, handle, _holding_back(pid))
        ask(pid)
    waited = 0
    while asked:
        for rank in [rank for rank, one in asked.items() if _has_answered(one)]:
            found[rank] = text_of(asked.pop(rank).handle)
        if asked and time.monotonic() >= deadline:
            return found | {rank: _silence(one, timeout_s) for rank, one in asked.items()}
        if asked:
            wait_a_moment(waited)
            waited += 1
    return found


def _cannot_answer(pid: int) -> str | None:
    state = facts(pid).state
    if state in _ASLEEP:
        return _ASLEEP[state]
    if state in (GONE, "Z"):
        return "the process has ended"
    status = f"/proc/{pid}/status"
    if not (_mask(status, "SigCgt") | _mask(status, "SigBlk")) & _BIT:
        return "the process has become another program"  # which the signal would kill
    return None


def _has_answered(asked: _Asked) -> bool:
    """Whether the handler has run to its end.

    While it runs, its thread holds the signal back; before, the signal is pending.
    """
    if not facts(asked.pid).is_running:
        return True
    if os.fstat(asked.handle).st_size == 0:
        return False
    return _holding_back(asked.pid) <= asked.deaf


def _holding_back(pid: int) -> set[str]:
    """Return the threads that have the signal blocked."""
    found: set[str] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            if _mask(f"/proc/{pid}/task/{task}/status", "SigBlk") & _BIT:
                found.add(task)
    return found


def _mask(path: str, name: str) -> int:
    try:
        with open(path, "rb") as file:
            lines = [line for line in file if line.startswith(f"{name}:".encode())]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(lines[0].split()[1], 16) if lines else 0


def text_of(handle: int) -> str:
    """Return what was written to a stack file, and empty it."""
    size = os.fstat(handle).st_size
    text = os.pread(handle, size, 0).decode(errors="replace")
    os.ftruncate(handle, 0)
    return text or "the process ended before it could answer"


def _silence(asked: _Asked, timeout_s: float) -> str:
    """Return what there is to say of a worker that did not answer in time."""
    state = facts(asked.pid).state
    partly = text_of(asked.handle) if os.fstat(asked.handle).st_size else ""
    if state in _ASLEEP:
        why = _ASLEEP[state]
    elif state == "D":
        where = _waits_in(asked.pid)
        why = f"the process waits in the kernel and cannot be interrupted{where}"
    else:
        why = f"the process did not answer within {timeout_s:g} s (its state is {state!r})"
    return f"{why}\n{partly}" if partly else why


def _waits_in(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/wchan", "rb") as file:
            place = file.read().decode(errors="replace")
    except OSError:
        place = ""
    return f" (in {place})" if place not in ("", "0") else ""

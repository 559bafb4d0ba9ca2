"""Where the threads of a worker stand, whatever it does: asked by its driver, written to a file.

First a thread of the worker is asked, which waits for nothing else and writes while it has the
interpreter's lock, so that nothing moves under its eyes. Who does not answer is sent a signal
whose handler is faulthandler's, in C: it needs neither that lock nor the worker's help, so a loop
that never lets go of the lock is seen as it is. It is not asked first because it may read a frame
that is being made or left, which kills a worker that is well, if only once in ten thousand times.

The file is in memory; the driver made it, it has no name, and is gone with the last who holds it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import tempfile
import time
from _thread import start_new_thread
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.engine.processes import GONE, HIDDEN, facts, wait_a_moment

SIGNAL = signal.SIGRTMIN + 11  # one of those nobody uses: what it does by default is kill
_THREAD_S = 2.0  # how long the thread has to answer
_END = b"\0"  # after all that it writes
_BIT = 1 << (SIGNAL - 1)
_ASLEEP = {
    "T": "the process was put to sleep by a signal (SIGSTOP or SIGTSTP); SIGCONT wakes it",
    "t": "the process is held by a debugger",
}


def answer_requests(questions: int, answers: int) -> None:
    """Write this process's stacks to the file `answers` whenever there is something to read.

    To be called while signals are held back, so that the thread it starts takes none.
    """
    faulthandler.register(SIGNAL, file=answers, all_threads=True, chain=False)
    start_new_thread(_answer, (questions, answers))  # unknown to `threading`, and so to the user


def _answer(questions: int, answers: int) -> None:
    while os.read(questions, 1):
        faulthandler.dump_traceback(answers, all_threads=True)
        os.write(answers, _END)


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
class Asked:
    """One worker that is asked.

    Attributes:
        pid: Its process.
        questions: Where its thread reads.
        answers: The file to which it writes.
    """

    pid: int
    questions: int
    answers: int
    deaf: set[str] | None = None  # threads that hold `SIGNAL` back anyway, once it was sent


def collect(
    workers: Mapping[int, Asked], send_signal: Callable[[int, int], None], timeout_s: float
) -> dict[int, str]:
    """Return the stacks of workers by rank, or why there are none.

    Args:
        workers: Those to be asked, by rank.
        send_signal: Sends a signal, its second argument, to a process.
        timeout_s: How long to wait for all of them together.
    """
    began = time.monotonic()
    silent = dict(workers)
    found = _ask(silent, lambda one: _poke(one.questions))
    waited = 0
    while silent:
        for rank in [rank for rank, one in silent.items() if _has_answered(one)]:
            found[rank] = text_of(silent.pop(rank).answers)
        passed_s = time.monotonic() - began
        if passed_s >= timeout_s:
            return found | {rank: _silence(one, timeout_s) for rank, one in silent.items()}
        if passed_s >= min(_THREAD_S, timeout_s / 2):
            unasked = {rank: one for rank, one in silent.items() if one.deaf is None}
            found |= _ask(unasked, lambda one: _insist(one, send_signal))
            silent = {rank: one for rank, one in silent.items() if rank not in found}
        if silent:
            wait_a_moment(waited)
            waited += 1
    return found


def _ask(workers: dict[int, Asked], send: Callable[[Asked], None]) -> dict[int, str]:
    """Ask those who can answer; take the others out, and return why they cannot."""
    reasons: dict[int, str] = {}
    for rank, one in list(workers.items()):
        if (reason := _cannot_answer(one.pid)) is not None:
            reasons[rank] = reason
            del workers[rank]
        else:
            os.ftruncate(one.answers, 0)
            send(one)
    return reasons


def _poke(questions: int) -> None:
    with contextlib.suppress(BlockingIOError, BrokenPipeError):  # it does not read, or has ended
        os.write(questions, b"?")


def _insist(asked: Asked, send_signal: Callable[[int, int], None]) -> None:
    asked.deaf = _holding_back(asked.pid)
    send_signal(asked.pid, SIGNAL)


def _cannot_answer(pid: int) -> str | None:
    state = facts(pid).state
    if state in _ASLEEP:
        return _ASLEEP[state]
    if state in (GONE, "Z"):
        return "the process has ended"
    if state == HIDDEN:
        return "the process has become another user's"
    status = f"/proc/{pid}/status"
    if not (_mask(status, "SigCgt") | _mask(status, "SigBlk")) & _BIT:
        return "the process has become another program"  # which the signal would kill
    return None


def _has_answered(asked: Asked) -> bool:
    """Whether the thread has answered, or the handler has run to its end.

    While a handler runs, its thread holds the signal back; before, the signal is pending.
    """
    if not facts(asked.pid).is_running:
        return True
    if (size := os.fstat(asked.answers).st_size) == 0:
        return False
    if os.pread(asked.answers, 1, size - 1) == _END:
        return True
    return asked.deaf is not None and _holding_back(asked.pid) <= asked.deaf


def _holding_back(pid: int) -> set[str]:
    """Return the threads that have the signal blocked."""
    found: set[str] = set()
    with contextlib.suppress(OSError):  # it has ended, or may not be looked at
        for task in os.listdir(f"/proc/{pid}/task"):
            if _mask(f"/proc/{pid}/task/{task}/status", "SigBlk") & _BIT:
                found.add(task)
    return found


def _mask(path: str, name: str) -> int:
    try:
        with open(path, "rb") as file:
            lines = [line for line in file if line.startswith(f"{name}:".encode())]
    except OSError:  # it has ended, or may not be looked at
        return 0
    return int(lines[0].split()[1], 16) if lines else 0


def text_of(handle: int) -> str:
    """Return what was written to a stack file, and empty it."""
    size = os.fstat(handle).st_size
    written = os.pread(handle, size, 0)
    os.ftruncate(handle, 0)
    threads = written.removesuffix(_END).decode(errors="replace").split("\n\n")
    if written.endswith(_END):
        threads = [one for one in threads if not one.startswith("Current")]  # that which writes
    return "\n\n".join(threads) or "the process ended before it could answer"


def _silence(asked: Asked, timeout_s: float) -> str:
    """Return what there is to say of a worker that did not answer in time."""
    state = facts(asked.pid).state
    partly = text_of(asked.answers) if os.fstat(asked.answers).st_size else ""
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

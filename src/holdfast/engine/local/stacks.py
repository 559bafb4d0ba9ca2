"""Stack traces of a worker's threads, requested by its driver and written to a file.

The driver first asks a thread of the worker that exists only for this. It writes while it holds the
interpreter's lock, so no frame changes meanwhile. If it does not answer, the worker is sent a
signal that faulthandler handles in C, which works even in a loop that never releases the lock. The
signal is not used first because faulthandler may read a frame that is just being made or left,
which crashes a healthy worker about once in ten thousand times.

The file is in memory and has no name; it vanishes when the last process closes it.
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

SIGNAL = signal.SIGRTMIN + 11  # unused by other programs; without a handler it kills
_THREAD_S = 2.0  # how long the thread has to answer
_END = b"\0"  # ends the answer of the thread
_BIT = 1 << (SIGNAL - 1)
_ASLEEP = {
    "T": "the process was put to sleep by a signal (SIGSTOP or SIGTSTP); SIGCONT wakes it",
    "t": "the process is held by a debugger",
}


def answer_requests(questions: int, answers: int) -> None:
    """Write this process's stacks to the file `answers` for every byte in the pipe `questions`.

    To be called while signals are blocked, so that the new thread receives none.
    """
    faulthandler.register(SIGNAL, file=answers, all_threads=True, chain=False)
    start_new_thread(_answer, (questions, answers))  # invisible to `threading`, so to the user


def _answer(questions: int, answers: int) -> None:
    while os.read(questions, 1):
        faulthandler.dump_traceback(answers, all_threads=True)
        os.write(answers, _END)


def new_file() -> int:
    """Return a file without a name, open for appending."""
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
class Request:
    """A request for the stacks of one worker.

    Attributes:
        pid: Its process.
        questions: The pipe that its thread reads from.
        answers: The file that it writes to.
        blocked_before: Threads that had `SIGNAL` blocked when it was sent; None before that.
    """

    pid: int
    questions: int
    answers: int
    blocked_before: set[str] | None = None


def collect(
    requests: Mapping[int, Request], send_signal: Callable[[int, int], None], timeout_s: float
) -> dict[int, str]:
    """Return the stacks of workers by rank, or why there are none.

    Args:
        requests: One for each worker, by rank.
        send_signal: Sends a signal, its second argument, to a process.
        timeout_s: How long to wait for all of them together.
    """
    began = time.monotonic()
    waiting = dict(requests)
    texts = _send(waiting, lambda request: _poke(request.questions))
    waited = 0
    while waiting:
        for rank in [rank for rank, request in waiting.items() if _is_answered(request)]:
            texts[rank] = text_of(waiting.pop(rank).answers)
        passed_s = time.monotonic() - began
        if passed_s >= timeout_s:
            return texts | {rank: _silence(late, timeout_s) for rank, late in waiting.items()}
        if passed_s >= min(_THREAD_S, timeout_s / 2):
            unsignalled = {
                rank: request for rank, request in waiting.items() if request.blocked_before is None
            }
            texts |= _send(unsignalled, lambda request: _signal(request, send_signal))
            waiting = {rank: request for rank, request in waiting.items() if rank not in texts}
        if waiting:
            wait_a_moment(waited)
            waited += 1
    return texts


def _send(requests: dict[int, Request], send: Callable[[Request], None]) -> dict[int, str]:
    """Send requests to workers that can answer; remove the others, and return why they cannot."""
    reasons: dict[int, str] = {}
    for rank, request in list(requests.items()):
        if (reason := _cannot_answer(request.pid)) is not None:
            reasons[rank] = reason
            del requests[rank]
        else:
            os.ftruncate(request.answers, 0)
            send(request)
    return reasons


def _poke(questions: int) -> None:
    with contextlib.suppress(BlockingIOError, BrokenPipeError):  # it does not read, or has ended
        os.write(questions, b"?")


def _signal(request: Request, send_signal: Callable[[int, int], None]) -> None:
    request.blocked_before = _blocking_threads(request.pid)
    send_signal(request.pid, SIGNAL)


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


def _is_answered(request: Request) -> bool:
    """Whether the thread has answered, or the handler has run to its end.

    While a handler runs, its thread has the signal blocked.
    """
    if not facts(request.pid).is_running:
        return True
    if (size := os.fstat(request.answers).st_size) == 0:
        return False
    if os.pread(request.answers, 1, size - 1) == _END:
        return True
    before = request.blocked_before
    return before is not None and _blocking_threads(request.pid) <= before


def _blocking_threads(pid: int) -> set[str]:
    """Return the threads that have the signal blocked."""
    blocking: set[str] = set()
    with contextlib.suppress(OSError):  # it has ended, or may not be looked at
        for task in os.listdir(f"/proc/{pid}/task"):
            if _mask(f"/proc/{pid}/task/{task}/status", "SigBlk") & _BIT:
                blocking.add(task)
    return blocking


def _mask(path: str, name: str) -> int:
    try:
        with open(path, "rb") as file:
            lines = [line for line in file if line.startswith(f"{name}:".encode())]
    except OSError:  # it has ended, or may not be looked at
        return 0
    return int(lines[0].split()[1], 16) if lines else 0


def text_of(handle: int) -> str:
    """Return the content of a stack file, and empty it."""
    size = os.fstat(handle).st_size
    written = os.pread(handle, size, 0)
    os.ftruncate(handle, 0)
    threads = written.removesuffix(_END).decode(errors="replace").split("\n\n")
    if written.endswith(_END):
        threads = [text for text in threads if not text.startswith("Current")]  # the one that wrote
    return "\n\n".join(threads) or "the process ended before it could answer"


def _silence(request: Request, timeout_s: float) -> str:
    """Return why a worker did not answer in time, with what it wrote until then."""
    state = facts(request.pid).state
    partly = text_of(request.answers) if os.fstat(request.answers).st_size else ""
    if state in _ASLEEP:
        why = _ASLEEP[state]
    elif state == "D":
        where = _waits_in(request.pid)
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

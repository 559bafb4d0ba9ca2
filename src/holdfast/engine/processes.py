"""Facts about processes, read from /proc, and ways to end processes."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Container, Iterator
from dataclasses import dataclass
from functools import cache

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
CLEANUP_S = 3.0  # torch's process ends when it has had no request for 2 s
ORPHANS_PATIENCE_S = 4.0
_CLEANERS = (b"multiprocessing.resource_tracker", b"torch_shm_manager")
GONE = ""  # the state of a process that does not exist
HIDDEN = "?"  # the state of a process that exists, but that this user may not look at


@dataclass(frozen=True, slots=True)
class Facts:
    """A process at one moment.

    Attributes:
        state: One letter, as `ps` shows it: R runs, S sleeps, D waits and cannot be interrupted,
            T was stopped, Z has ended; `GONE` if there is no such process. `HIDDEN` if only its
            existence is known: another user's, where `/proc` hides these (hidepid).
    """

    state: str
    parent: int = 0
    session: int = 0

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self.state not in (GONE, "Z", "X")


def facts(pid: int) -> Facts:
    """Return the facts about a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return Facts(HIDDEN if _exists(pid) else GONE)
    return Facts(fields[0].decode(), int(fields[1]), int(fields[3]))


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        return False
    return True


def threads(pid: int | str = "self") -> list[str]:
    """Return the names of a process's threads, including those of native libraries."""
    names: list[str] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/comm", "rb") as file:
                names.append(file.read().decode(errors="replace").strip())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    return names


def children() -> list[int]:
    """Return the processes whose parent is this one, including those that wait to be reaped."""
    mine = os.getpid()
    try:
        pids: list[int] = []
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children", "rb") as file:
                pids += map(int, file.read().split())
    except FileNotFoundError:  # a kernel built without it
        return [pid for pid in everything() if facts(pid).parent == mine]
    return pids


def everything() -> Iterator[int]:
    """Yield the number of every process."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def belong_to(sessions: Collection[int], mark: str) -> list[int]:
    """Return the running processes of these sessions, and those that were started with `mark`.

    A process that left its session is recognized by an environment variable it inherited, unless
    it was forked without executing a program.
    """
    pids: list[int] = []
    for pid in everything():
        process = facts(pid)
        if process.is_running and (process.session in sessions or _has_mark(pid, mark)):
            pids.append(pid)
    return pids


def _has_mark(pid: int, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark.encode() in file.read().split(b"\0")
    except OSError:
        return False  # it is another user's, or has just ended


def end(pids: Collection[int]) -> None:
    """Kill processes; it is no error if some are gone already."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def wake(pid: int) -> None:
    """Resume a process that was put to sleep; it is no error if it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGCONT)


def end_but_cleaners(pids: Collection[int], passed_s: float) -> None:
    """Kill processes; those that clean up only once `passed_s` exceeds `CLEANUP_S`.

    Segments of shared memory have names that outlive every process. Libraries run a process that
    removes them, which ends by itself once all processes that might use them are gone.
    """
    end([pid for pid in pids if passed_s >= CLEANUP_S or not _is_cleaner(pid)])


def _is_cleaner(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read()
    except OSError:
        return False  # it is gone
    return any(name in command for name in _CLEANERS)


def be_signalled_when_parent_ends(number: signal.Signals) -> None:
    """Have the kernel signal this process when the thread that forked it ends; Linux only."""
    _prctl(_PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Become the parent of every orphaned descendant; Linux only."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if (prctl := _prctl_of_libc()) is not None:
        prctl(option, value, 0, 0, 0)


@cache
def _prctl_of_libc() -> Callable[..., int] | None:
    """Return the function, looked up once in the zygote for all its workers."""
    return getattr(ctypes.CDLL(None), "prctl", None)


def wait_for_end(pid: int, timeout_s: float) -> bool:
    """Wait for the end of a process, child or not; return whether it has ended."""
    deadline = time.monotonic() + timeout_s
    if (handle := end_of(pid)) is not None:
        try:
            return has_ended(handle, timeout_s)
        finally:
            os.close(handle)
    waited = 0
    while (is_running := facts(pid).is_running) and time.monotonic() < deadline:
        wait_a_moment(waited)
        waited += 1
    return not is_running


def end_of(pid: int) -> int | None:
    """Return a file that becomes readable when a process ends.

    None if there is no such process, or no such file on this system.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def has_ended(handle: int, timeout_s: float = 0.0) -> bool:
    """Wait for the end of the process whose file `end_of` returned; return whether it has ended."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def wait_a_moment(waited: int) -> None:
    """Sleep for a moment, longer the more often the caller has waited already."""
    time.sleep(min(0.05, 0.0005 * 2 ** min(waited, 10)))


def end_all(sessions: Collection[int], mark: str) -> None:
    """End the processes that `belong_to` returns, and return once none is left."""
    began, waited = time.monotonic(), 0
    while left := belong_to(sessions, mark):
        end_but_cleaners(left, time.monotonic() - began)
        wait_a_moment(waited)
        waited += 1
        if waited == 200:
            log.warning("processes %s wait in the kernel and cannot be ended yet", left)


def end_orphans(workers: Container[int] = (), *, patience_s: float = ORPHANS_PATIENCE_S) -> None:
    """Kill every child of this process that is no worker, and wait until it is gone.

    Every worker adopts the orphans below it, so a child of the zygote that is no worker was
    started by a dead worker. The wait is bounded: a process that waits for a disk dies only when
    the disk answers.
    """
    began = time.monotonic()
    waited = 0
    while orphans := [pid for pid in children() if pid not in workers]:
        end_but_cleaners(orphans, time.monotonic() - began)
        if any([_is_reaped(pid) for pid in orphans]):  # noqa: C419  # all of them, not the first
            continue
        if time.monotonic() > began + patience_s:
            return
        wait_a_moment(waited)
        waited += 1


def _is_reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return True

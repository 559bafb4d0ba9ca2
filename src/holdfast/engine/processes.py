"""What the kernel says of a process, read from /proc; nothing here changes one, but to end it."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
TIDYING_S = 3.0  # that of torch ends when nobody has asked it for 2 s
_TIDYING = (b"multiprocessing.resource_tracker", b"torch_shm_manager")
GONE = ""  # the state of a process that is not there
HIDDEN = "?"  # that of one that is there, and that this user may not look at


@dataclass(frozen=True, slots=True)
class Facts:
    """A process at one moment.

    Attributes:
        state: One letter, as `ps` shows it: R runs, S sleeps, D waits and cannot be interrupted,
            T was stopped, Z has ended; `GONE` if there is no such process. `HIDDEN` if nothing is
            known but that there is one: somebody else's, where `/proc` hides these (hidepid).
    """

    state: str
    parent: int = 0
    session: int = 0

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self.state not in (GONE, "Z", "X")


def facts(pid: int) -> Facts:
    """Return what is known of a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return Facts(HIDDEN if _is_there(pid) else GONE)
    return Facts(fields[0].decode(), int(fields[1]), int(fields[3]))


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        return False
    return True


def threads(pid: int | str = "self") -> list[str]:
    """Return the names of a process's threads, those of native libraries included."""
    names: list[str] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/comm", "rb") as file:
                names.append(file.read().decode(errors="replace").strip())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    return names


def children() -> list[int]:
    """Return the processes whose parent is this one, those that ended and wait included."""
    mine = os.getpid()
    try:
        found: list[int] = []
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:  # a kernel built without it
        return [pid for pid in everything() if facts(pid).parent == mine]
    return found


def everything() -> Iterator[int]:
    """Yield the number of every process."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def belong_to(sessions: Collection[int], mark: str) -> list[int]:
    """Return the running processes of these sessions, or that were started with `mark`.

    A process that left its session is known by a variable it inherited, unless it was forked
    without a program of its own.
    """
    found: list[int] = []
    for pid in everything():
        known = facts(pid)
        if known.is_running and (known.session in sessions or _was_given(pid, mark)):
            found.append(pid)
    return found


def _was_given(pid: int, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark.encode() in file.read().split(b"\0")
    except OSError:
        return False  # it is somebody else's, or has just ended


def end(pids: Collection[int]) -> None:
    """Kill processes; those that are gone already are no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def wake(pid: int) -> None:
    """Let a process go on that was put to sleep; one that is gone is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGCONT)


def end_untidily(pids: Collection[int], passed_s: float) -> None:
    """Kill processes, but leave those that tidy up a moment; `passed_s` of it have passed.

    Segments of shared memory have names that outlive everyone. Libraries have a process that
    removes them; it ends by itself when all are gone who might still use them, or were killed.
    """
    end([pid for pid in pids if passed_s >= TIDYING_S or not _tidies_up(pid)])


def _tidies_up(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read()
    except OSError:
        return False  # it is gone
    return any(name in command for name in _TIDYING)


def be_signalled_when_parent_ends(number: signal.Signals) -> None:
    """Have the kernel send a signal when the thread that forked this process ends; Linux only."""
    _prctl(_PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Become the parent of whatever descendants leave behind; Linux only."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if (prctl := _prctl_of_libc()) is not None:
        prctl(option, value, 0, 0, 0)


@cache
def _prctl_of_libc() -> Callable[..., int] | None:
    """Return the function, looked up once: a worker finds it where its zygote has left it."""
    return getattr(ctypes.CDLL(None), "prctl", None)


def wait_for_end(pid: int, timeout_s: float) -> bool:
    """Return whether a process has ended, waiting a while for it; it need not be a child."""
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
    """Return whether the process has ended that `end_of` gave a file of, waiting a while for it."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def wait_a_moment(waited: int) -> None:
    """Let a little time pass, more the longer it has taken already."""
    time.sleep(min(0.05, 0.0005 * 2 ** min(waited, 10)))


def end_all(sessions: Collection[int], mark: str) -> None:
    """End what `belong_to` finds, and return once there is nothing of it."""
    began, waited = time.monotonic(), 0
    while left := belong_to(sessions, mark):
        end_untidily(left, time.monotonic() - began)
        wait_a_moment(waited)
        waited += 1
        if waited == 200:
            log.warning("processes %s wait in the kernel and cannot be ended yet", left)

"""Who a process is, so that another one can tell whether it still lives.

A process id alone is not enough: ids are reused, and two machines or containers each have their
own. Only where kernel, process namespace, id and start time can all be compared is death proven.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.errors import RunHeld
from holdfast.storage.records import fit

_PIDS_MAX = 1 << 31


@dataclass(frozen=True, slots=True)
class Owner:
    """One process on one machine. `place` names the kernel and process namespace it runs in."""

    host: str
    pid: int
    started: float
    place: str
    user: str

    def to_record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Owner:
        return fit(record, cls)

    def is_proven_dead(self) -> bool:
        """Whether this process cannot possibly run any more; False where nobody can tell."""
        if self.place != _place() or not 0 < self.pid < _PIDS_MAX:
            return False
        try:
            return _start_time(self.pid) != self.started
        except _CannotTell:
            return False

    def __str__(self) -> str:
        return f"{self.host} (pid {self.pid})"


class _CannotTell(Exception):
    """There is a process that this user may not look at (`/proc` with hidepid)."""


def this_process() -> Owner:
    """Return the owner that stands for the calling process."""
    pid = os.getpid()
    started = _start_time(pid)
    assert started is not None, "the calling process exists"
    return Owner(socket.gethostname(), pid, started, _place(), _user())


def _start_time(pid: int) -> float | None:
    """Return when a process began, in whatever unit this system keeps; None if it has ended.

    Raises `_CannotTell` if it has not, or another of its number has not, and no more can be seen.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold anything; the state is the first field after it.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, PermissionError):
        if not os.path.exists("/proc/self/stat"):
            return _start_time_elsewhere(pid)
        if _is_there(pid):
            raise _CannotTell from None
        return None
    except ProcessLookupError:
        return None
    # Ticks since boot: unlike a wall time it does not move when the clock is set.
    return None if fields[0] == b"Z" else float(fields[19])


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):  # the latter: no process has such a number
        return False
    return True


def _start_time_elsewhere(pid: int) -> float | None:
    import psutil

    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        raise _CannotTell from None


def _place() -> str:
    """Return a name for this kernel since its boot and this process namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except FileNotFoundError:  # not Linux
        return socket.gethostname()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def held_error(
    run: str, owner: Owner, *, age_s: float, left_s: float, is_silent: bool, has_beaten: bool
) -> RunHeld:
    """Return what to raise for a run whose holder is not proven dead.

    Args:
        run: The run, for people.
        owner: Who holds it.
        age_s: How long ago its lease was renewed.
        left_s: How long until the lease runs out, if it is not renewed.
        is_silent: Whether a holder that lives would have renewed its lease by now.
        has_beaten: Whether it was seen to renew its lease while we looked.
    """
    me = this_process()
    message = f"{run} is held by {owner}, lease renewed {max(0.0, age_s):.0f} s ago"
    runs_out = f"in {max(0.0, left_s):.0f} s"
    stop = f"stop it (kill {owner.pid} on {owner.host} ends it in good order)"
    if (owner.place, owner.pid, owner.started) == (me.place, me.pid, me.started):
        return RunHeld(
            f"{message}: that is this very process",
            hint="let the fit() end that runs in another thread of it, or choose another name",
        )
    if is_silent and not has_beaten:
        return RunHeld(
            f"{message}: it is silent",
            hint=f"give the same command again {runs_out}: its lease has run out then, unless it"
            " speaks up before",
        )
    if has_beaten or owner.place == me.place:  # there, the death of a process is seen
        return RunHeld(
            f"{message}: it lives",
            hint=f"{stop}, or choose another name; while it lives it renews its lease, so that"
            " waiting helps only if it ends by itself",
        )
    return RunHeld(
        message,
        hint=f"{stop}, or choose another name; if it is dead already, its lease runs out"
        f" {runs_out}",
    )

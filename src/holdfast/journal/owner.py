"""Identifies a process, so that another one can tell whether it still lives.

A process id alone is not enough: ids are reused, and each machine or container has its own. Death
is proven only if kernel, process namespace, id and start time can all be compared.
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
        """Whether this process has certainly ended; False if that cannot be known."""
        if self.place != _place() or not 0 < self.pid < _PIDS_MAX:
            return False
        try:
            return _start_time(self.pid) != self.started
        except _CannotTell:
            return False

    def __str__(self) -> str:
        return f"{self.host} (pid {self.pid})"


class _CannotTell(Exception):
    """The process exists, but this user may not inspect it (`/proc` with hidepid)."""


def this_process() -> Owner:
    """Return the owner for the calling process."""
    pid = os.getpid()
    started = _start_time(pid)
    assert started is not None, "the calling process exists"
    return Owner(socket.gethostname(), pid, started, _place(), _user())


def _start_time(pid: int) -> float | None:
    """Return when a process began, in the system's own unit; None if it has ended.

    Raises `_CannotTell` if a process has this id but cannot be inspected.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may contain anything; the state is the first field after it.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, PermissionError):
        if not os.path.exists("/proc/self/stat"):
            return _start_time_elsewhere(pid)
        if _is_there(pid):
            raise _CannotTell from None
        return None
    except ProcessLookupError:
        return None
    # Ticks since boot: unlike wall time, they do not change when the clock is set.
    return None if fields[0] == b"Z" else float(fields[19])


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):  # OverflowError: no process can have such an id
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
    """Return the error for a run whose holder is not proven dead.

    Args:
        run: The run, as messages name it.
        owner: Its holder.
        age_s: How long ago the lease was renewed.
        left_s: How long until the lease expires, if it is not renewed.
        is_silent: Whether a living holder would have renewed its lease by now.
        has_beaten: Whether the lease was renewed while we watched.
    """
    me = this_process()
    message = f"{run} is held by {owner}, lease renewed {max(0.0, age_s):.0f} s ago"
    runs_out = f"in {max(0.0, left_s):.0f} s"
    stop = f"stop it (kill {owner.pid} on {owner.host} ends it in good order)"
    if (owner.place, owner.pid, owner.started) == (me.place, me.pid, me.started):
        return RunHeld(
            f"{message}: that is this very process",
            hint="wait for the fit() in another of its threads to end, or choose another name",
        )
    if is_silent and not has_beaten:
        return RunHeld(
            f"{message}: it is silent",
            hint=f"give the same command again {runs_out}: its lease has expired then, unless it is"
            " renewed before",
        )
    if has_beaten or owner.place == me.place:  # here, a dead process would have been noticed
        return RunHeld(
            f"{message}: it lives",
            hint=f"{stop}, or choose another name; while it lives it renews its lease, so waiting"
            " helps only if it ends by itself",
        )
    return RunHeld(
        message,
        hint=f"{stop}, or choose another name; if it is dead already, its lease expires {runs_out}",
    )

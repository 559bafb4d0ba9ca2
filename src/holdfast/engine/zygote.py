"""The zygote: a process with the heavy imports done, which forks a worker in milliseconds.

    python -m holdfast.engine.zygote FD

It is told what to do over the socket FD, one line of JSON a request, the new worker's own socket
riding along. It has one thread and runs no user code, so a fork of it is clean. It reaps what it
forked and says how each ended; it adopts whatever its workers leave behind and kills it. When its
driver is gone, which the socket tells it, it kills everything and ends.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
import time
import traceback
from typing import Any, NoReturn

from holdfast import settings

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
REQUEST_BYTES_MAX = 1 << 16
ORPHAN_PATIENCE_S = 2.0


class Zygote:
    """Serves one driver until it goes away."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._workers: set[int] = set()
        self._buffer = b""
        self._handed: list[int] = []  # sockets that came with requests not served yet

    def serve(self) -> None:
        """Do what the driver asks and tell it of every end, until it is gone."""
        wake_read, wake_write = socket.socketpair()
        wake_write.settimeout(0)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        try:
            while True:
                ready, _, _ = select.select([self._control, wake_read], [], [])
                if wake_read in ready:
                    wake_read.recv(4096)
                self._reap()
                if self._control in ready and not self._take_requests():
                    return
        finally:
            self._end_everything()

    def _take_requests(self) -> bool:
        """Serve what has come in; return False once the driver is gone."""
        room = socket.CMSG_SPACE(16 * array.array("i").itemsize)
        data, ancillary, _, _ = self._control.recvmsg(REQUEST_BYTES_MAX, room)
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                handles = array.array("i")
                handles.frombytes(content[: len(content) - len(content) % handles.itemsize])
                self._handed += handles
        if not data:
            return False
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._serve(json.loads(line))
        return True

    def _serve(self, request: dict[str, Any]) -> None:
        match request["do"]:
            case "import":
                for module in request["modules"]:
                    with contextlib.suppress(ImportError):  # the worker will meet it and say so
                        importlib.import_module(module)
                self._tell({"event": "imported"})
            case "fork":
                self._fork(request, self._handed.pop(0))
            case "signal" if request["pid"] in self._workers:
                _signal_group(request["pid"], request["signal"])

    def _fork(self, request: dict[str, Any], channel: int) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be_worker(request, channel, parent)
        os.close(channel)
        self._workers.add(pid)
        self._tell({"event": "forked", "id": request["id"], "pid": pid})

    def _be_worker(self, request: dict[str, Any], channel: int, parent: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)  # what is ignored, its children ignore too
            self._control.close()
            os.setsid()
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)  # the zygote died before it could be asked to take us along
            _print_to(request["log"])
            settings.add_to_environment(request["environment"])
            random.seed()  # not the same numbers in every worker
            module, _, function = request["entry"].partition(":")
            getattr(importlib.import_module(module), function)(channel)
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        except BaseException:  # noqa: BLE001  # the last chance to say what happened
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):  # a full disk, a closed stream
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        """Tell of every child that has ended, and end what it left behind."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid not in self._workers:
                continue  # something that a worker left and we adopted
            _end_what_it_left(pid)
            self._workers.discard(pid)
            if not self._workers:
                _end_orphans()
            self._tell({"event": "ended", "pid": pid, "code": os.waitstatus_to_exitcode(status)})

    def _end_everything(self) -> None:
        for pid in self._workers:
            _signal_group(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            for pid in self._workers:
                os.waitpid(pid, 0)
        _end_orphans()

    def _tell(self, event: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the driver is gone, as the next read will show
            self._control.sendall(json.dumps(event).encode() + b"\n")


def _end_what_it_left(group: int) -> None:
    """Kill the rest of an ended worker's group and wait until it is gone.

    What the worker had started is our child now, so its end can be waited for; not for ever,
    because a process that waits for a disk dies only when the disk answers.
    """
    deadline = time.monotonic() + ORPHAN_PATIENCE_S
    with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
        os.killpg(group, signal.SIGKILL)
        while time.monotonic() < deadline:
            if os.waitpid(-group, os.WNOHANG) == (0, 0):
                time.sleep(0.001)


def _end_orphans() -> None:
    """Kill whatever the last workers left in sessions of its own; all of it is our child now."""
    deadline = time.monotonic() + ORPHAN_PATIENCE_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                _kill_children()
                time.sleep(0.001)


def _kill_children() -> None:
    import psutil  # rarely needed, and every run would wait for it

    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def _signal_group(pid: int, number: int) -> None:
    """Send a signal to a worker that is not reaped yet, and to what it has started."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:  # forked a moment ago, it does not lead a group yet
        os.kill(pid, number)


def _print_to(log: str) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _prctl(option: int, value: int) -> None:
    """Set a process attribute; only Linux has these."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(option, value, 0, 0, 0)


def main() -> None:
    """Serve the driver at the other end of the socket whose number is the argument."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is the driver's to decide about
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Zygote(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()

"""The zygote: a process with the heavy imports done, which forks a worker in milliseconds.

Requests come over a socket, one line of JSON each, with the handles for a new worker attached. The
zygote has one thread, so a fork of it is clean. Of the user's code it runs at most the import of a
module that all workers need; if that leaves something that a fork does not survive (a thread, a
GPU), a new zygote is made without it.

Modules that only later workers need are imported some time after the first worker, in quiet
moments, one at a time: a fork requested meanwhile waits for one module, not for all. Nothing else
waits: a timer interrupts the import to kill workers and to report ends.

The zygote reaps its workers and reports how each ended; it adopts what they leave behind and kills
it. When the kernel reports the end of its driver or keeper, it kills everything and ends.
"""

from __future__ import annotations

import array
import contextlib
import errno
import gc
import importlib
import json
import logging
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from holdfast.engine import processes
from holdfast.engine.local import keeper
from holdfast.engine.local.forking import fork, stray_threads, why_forks_break
from holdfast.engine.local.worker_process import (
    Handles,
    become_worker,
    get_ready,
    hold_back_signals,
)

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 1 << 16
INTERRUPT_EVERY_S = 0.01  # how often an import is interrupted to serve requests
QUIET_S = 0.5  # more requests may follow the last: a group that was lost is started again
_HANDLES_PER_WORKER = len(Handles._fields)


class Zygote:
    """Serves one driver until it goes away."""

    def __init__(self, control: socket.socket, driver: int, keeper: int) -> None:
        self._control = control
        self._workers: dict[int, str] = {}  # the node of each
        self._received = b""
        self._unsent = b""
        self._handed: list[int] = []  # handles attached to requests not served yet
        self._is_importing = self._is_interrupted = False
        self._put_off: list[tuple[dict[str, Any], Handles]] = []  # forks, until an import is done
        self._later: list[str] = []  # modules that wait for a quiet moment
        self._later_after_s = 0.0
        self._later_from = float("inf")  # set by the first worker
        self._quiet_from = 0.0
        self._strays: list[str] | None = None  # threads that a fork does not copy; None: not known
        self._keeper = keeper
        self._ends = [end for pid in (driver, keeper) if (end := processes.end_of(pid)) is not None]
        self._is_driver_gone = os.getppid() != keeper
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        """Serve the driver's requests and report every end, until the driver is gone."""
        for line in (self._wake_read, self._wake_write, self._control):
            line.settimeout(0)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        for end in self._ends:
            self._selector.register(end, selectors.EVENT_READ)
        try:
            while not self._is_driver_gone:
                self._serve_once()
        finally:
            self._end_everything()

    def _serve_once(self) -> None:
        ready = self._wait(self._patience_s())
        if ready:
            self._quiet_from = time.monotonic() + min(QUIET_S, self._later_after_s)
        else:
            self._import_next()
        self._handle(ready)

    def _handle(self, ready: Mapping[object, int]) -> None:
        """Handle what is ready: ended workers, unsent events, requests, the end of the driver."""
        if self._wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                self._wake_read.recv(4096)
        self._reap()
        if ready.get(self._control, 0) & selectors.EVENT_WRITE:
            self._send()
        if ready.get(self._control, 0) & selectors.EVENT_READ:
            self._take_requests()
        if any(end in ready for end in self._ends):
            # Its socket may stay open for longer, in a process that the driver had forked.
            self._is_driver_gone = True

    def _wait(self, timeout_s: float | None) -> dict[object, int]:
        return {key.fileobj: events for key, events in self._selector.select(timeout_s)}

    # ------------------------------------------------------------------ requests

    def _take_requests(self) -> None:
        """Serve the requests that have arrived."""
        try:
            data = self._receive()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._is_driver_gone = True
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._serve(json.loads(line))

    def _receive(self) -> bytes:
        """Return bytes of requests, and queue the handles attached to them."""
        room = socket.CMSG_SPACE(_HANDLES_PER_WORKER * array.array("i").itemsize)
        flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        data, ancillary, message_flags, _ = self._control.recvmsg(REQUEST_BYTES_MAX, room, flags)
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                handles = array.array("i")
                handles.frombytes(content[: len(content) - len(content) % handles.itemsize])
                self._handed += handles
        if message_flags & socket.MSG_CTRUNC:  # too many open files: the other handles are lost
            missing = -len(self._handed) % _HANDLES_PER_WORKER
            self._handed += [-1] * (missing or _HANDLES_PER_WORKER)
        return data

    def _serve(self, request: dict[str, Any]) -> None:
        match request["do"]:
            case "import later":
                self._later, self._later_after_s = request["modules"], request["after_s"]
            case "fork":
                handles = Handles(*self._handed[:_HANDLES_PER_WORKER])
                del self._handed[:_HANDLES_PER_WORKER]
                if self._is_importing:
                    self._put_off.append((request, handles))
                else:
                    self._fork(request, handles)
            case "signal" if request["pid"] in self._workers:
                os.kill(request["pid"], request["signal"])
            case "kill" if request["pid"] in self._workers:
                processes.end([request["pid"]])  # what it has started is ended when it is reaped
            case "lose_node":
                lost = request["node"]
                processes.end([pid for pid, node in self._workers.items() if node == lost])
            case _:
                pass  # the worker has ended

    def import_now(self, modules: Sequence[str]) -> None:
        """Import what workers need; print a line for each module that cannot be imported."""
        with _interrupted_by(self._exit_if_alone):
            for module in modules:
                try:
                    importlib.import_module(module)
                except Exception as error:  # noqa: BLE001  # an import runs arbitrary code
                    # A worker that needs it will fail, too, with more detail in its log.
                    sys.stderr.write(f"holdfast: {module} cannot be imported: {error!r}\n")
        self._reset_after_import()

    def import_of_user(self, modules: Sequence[str]) -> str | None:
        """Import modules of the user's; return why forks are unsafe now, None if they are safe.

        Nothing is imported if forks were unsafe already; a forked driver was checked for that.
        """
        new = [module for module in modules if module not in sys.modules]
        if not new or why_forks_break() is not None:
            return None
        try:
            with _interrupted_by(self._exit_if_alone):
                for module in new:
                    importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001  # SystemExit must not end the zygote
            return f"its import raised {error!r}"
        if (reason := why_forks_break()) is not None:
            return reason
        self._reset_after_import()
        if (trial := fork()) == 0:
            os._exit(0)
        strays = stray_threads()
        os.waitpid(trial, 0)
        return f"it runs threads of native libraries: {', '.join(strays)}" if strays else None

    def _reset_after_import(self) -> None:
        get_ready()
        self._strays = None
        gc.freeze()  # what the collector does not touch stays shared with workers

    def _patience_s(self) -> float | None:
        """Return how long it must be quiet before the next import, None if there is none."""
        if not self._later or self._later_from == float("inf"):
            return None
        return max(0.0, max(self._later_from, self._quiet_from) - time.monotonic())

    def _import_next(self) -> None:
        """Import the next module of `_later`.

        An exception must not end this process, and with it all workers. It is not printed either: a
        worker that needs the module will raise it, too.
        """
        if not self._later:
            return
        module = self._later.pop(0)
        self._is_importing = True
        try:
            with _interrupted_by(self._serve_while_importing):
                importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001
            log.debug("%s cannot be imported ahead: %r", module, error)
        finally:
            self._is_importing = False
        self._reset_after_import()
        while self._put_off:
            self._fork(*self._put_off.pop(0))

    def _serve_while_importing(self) -> None:
        """Handle what cannot wait for the end of an import, in a signal handler."""
        if not self._is_importing or self._is_interrupted:
            return
        self._is_interrupted = True
        try:
            self._handle(self._wait(0))
            self._exit_if_alone()
        finally:
            self._is_interrupted = False

    def _exit_if_alone(self) -> None:
        """End this process if the driver is gone: an import may never end."""
        is_gone = self._is_driver_gone or os.getppid() != self._keeper
        if is_gone or any(processes.has_ended(end) for end in self._ends):
            self._end_everything()
            os._exit(0)

    def _fork(self, request: dict[str, Any], handles: Handles) -> None:
        parent = os.getpid()
        try:
            if -1 in handles:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            pid = fork()
        except OSError as error:
            handles.close()
            self._report({"event": "not forked", "id": request["id"], "error": error.strerror})
            return
        if pid == 0:
            self._close_own_files()
            become_worker(request, handles, parent)
        handles.close()
        self._workers[pid] = request["node"]
        self._later_from = min(self._later_from, time.monotonic() + self._later_after_s)
        if self._strays is None:  # only an import can start one
            self._strays = stray_threads()
        event = {"event": "forked", "id": request["id"], "pid": pid}
        self._report(event | {"threads": self._strays})

    def _close_own_files(self) -> None:
        """Close the zygote's own files, in a worker."""
        signal.set_wakeup_fd(-1)
        self._selector.close()
        for end in (self._control, self._wake_read, self._wake_write):
            end.close()
        for handle in [*self._handed, *self._ends]:
            os.close(handle)

    # ------------------------------------------------------------------ ends

    def _reap(self) -> None:
        """Report every worker that has ended, and end what it left behind."""
        while True:
            try:
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if child is None:
                return
            pid = child.si_pid
            # Readable only until the process is reaped; needed only if it was killed.
            cgroup = "" if child.si_code == os.CLD_EXITED else _cgroup(pid)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if pid not in self._workers:
                continue  # an orphan that a worker left behind
            del self._workers[pid]
            processes.end_orphans(self._workers)
            self._report({"event": "ended", "pid": pid, "code": code, "cgroup": cgroup})

    def _end_everything(self) -> None:
        processes.end(self._workers)
        for pid in self._workers:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        processes.end_orphans()

    # ------------------------------------------------------------------ reporting

    def _report(self, event: dict[str, Any]) -> None:
        self._unsent += json.dumps(event).encode() + b"\n"
        self._send()

    def _send(self) -> None:
        """Send what the driver takes now; it may be busy sending requests itself."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._control.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""  # the driver is gone, as the next read will show
        writing = selectors.EVENT_WRITE if self._unsent else 0
        self._selector.modify(self._control, selectors.EVENT_READ | writing)


@contextlib.contextmanager
def _interrupted_by(call: Callable[[], None]) -> Iterator[None]:
    """Have a timer interrupt the block every `INTERRUPT_EVERY_S` to run `call`."""
    signal.signal(signal.SIGALRM, lambda *_: call())
    # Repeatedly, because a single alarm may come just before the import waits for something.
    signal.setitimer(signal.ITIMER_REAL, INTERRUPT_EVERY_S, INTERRUPT_EVERY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _cgroup(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cgroup", "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def serve(
    control: socket.socket, driver: int, modules: Sequence[str], of_user: Sequence[str]
) -> NoReturn:
    """Become the keeper of a zygote, in the process that `driver` has started for it.

    The zygote imports `modules` before it forks anything, and the user's modules, too, unless that
    makes forks unsafe.
    """
    pid = os.getpid()

    def be_zygote(is_first: bool) -> None:  # noqa: FBT001
        code = 1
        try:
            _serve(control, driver, pid, modules, of_user if is_first else ())
            code = 0
        except _Unfit:
            code = keeper.UNFIT
        except BaseException:  # noqa: BLE001  # nothing may escape: the stack is the driver's
            traceback.print_exc()
        finally:
            os._exit(code)

    keeper.keep(be_zygote, driver, control)


class _Unfit(Exception):
    """This zygote must not fork anything."""


def _serve(
    control: socket.socket,
    driver: int,
    parent: int,
    modules: Sequence[str],
    of_user: Sequence[str],
) -> None:
    """Serve as the zygote of `driver` until the driver is gone."""
    os.setsid()
    processes.adopt_orphans()
    # To see that the driver is gone it must be awake: SIGCONT wakes it if it was put to sleep.
    processes.be_signalled_when_parent_ends(signal.SIGCONT)
    hold_back_signals()
    get_ready()
    zygote = Zygote(control, driver, parent)
    zygote.import_now(modules)
    if (reason := zygote.import_of_user(of_user)) is not None:
        event = {"event": "unfit", "modules": list(of_user), "reason": reason}
        control.sendall(json.dumps(event).encode() + b"\n")
        raise _Unfit
    zygote.serve()

"""The zygote: a process with the heavy imports done, which forks a worker in milliseconds.

It is told what to do over a socket, one line of JSON a request, what a new worker begins with
riding along. It has one thread, so a fork of it is clean. Of the user's code it runs at most the
import of a module that all workers need; if that has left something that a fork does not survive
(a thread, a GPU), the zygote is made anew without it.
What only later workers gain from, it imports a while after the first, in quiet moments, a module at
a time: a fork that is wanted meanwhile waits for one module and not for all. Nothing else waits: a
timer has it look up from the import, and what is to be killed is killed, what has ended is told.
It reaps what it forked and says how each ended; it adopts whatever its workers leave behind and
kills it. When its driver or its keeper is gone, which the kernel tells it, it kills everything and
ends.
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
from holdfast.engine.local.orphans import end_orphans
from holdfast.engine.local.worker_process import (
    Handles,
    become_worker,
    get_ready,
    hold_back_signals,
)

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 1 << 16
LOOK_UP_S = 0.01  # from an import
QUIET_S = 0.5  # who has just said something may say more; a group that was lost is started again
_HANDLES_PER_WORKER = len(Handles._fields)


class Zygote:
    """Serves one driver until it goes away."""

    def __init__(self, control: socket.socket, driver: int, keeper: int) -> None:
        self._control = control
        self._workers: dict[int, str] = {}  # the node of each
        self._received = b""
        self._unsent = b""
        self._handed: list[int] = []  # what came with requests not served yet
        self._is_importing = self._is_looking_up = False
        self._put_off: list[tuple[dict[str, Any], Handles]] = []  # forks, until an import is done
        self._later: list[str] = []  # modules that wait for a quiet moment
        self._later_after_s = 0.0
        self._later_from = float("inf")  # until the first worker is there
        self._quiet_from = 0.0
        self._strays: list[str] | None = None  # threads that a worker is forked without
        self._keeper = keeper
        self._ends = [end for pid in (driver, keeper) if (end := processes.end_of(pid)) is not None]
        self._is_driver_gone = os.getppid() != keeper
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        """Do what the driver asks and tell it of every end, until it is gone."""
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
            self._import_one()
        self._attend(ready)

    def _attend(self, ready: Mapping[object, int]) -> None:
        """Do what can be done at once."""
        if self._wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                self._wake_read.recv(4096)
        self._reap()
        if ready.get(self._control, 0) & selectors.EVENT_WRITE:
            self._send()
        if ready.get(self._control, 0) & selectors.EVENT_READ:
            self._take_requests()
        if any(end in ready for end in self._ends):
            # Its socket may stay open for longer: in a process that the driver had forked.
            self._is_driver_gone = True

    def _wait(self, timeout_s: float | None) -> dict[object, int]:
        return {key.fileobj: events for key, events in self._selector.select(timeout_s)}

    # ------------------------------------------------------------------ requests

    def _take_requests(self) -> None:
        """Serve what has come in."""
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
        """Return some bytes of requests; the files handed along go to the end of the queue."""
        room = socket.CMSG_SPACE(_HANDLES_PER_WORKER * array.array("i").itemsize)
        flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        data, ancillary, came, _ = self._control.recvmsg(REQUEST_BYTES_MAX, room, flags)
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                handles = array.array("i")
                handles.frombytes(content[: len(content) - len(content) % handles.itemsize])
                self._handed += handles
        if came & socket.MSG_CTRUNC:  # no room for more open files: the rest of them is lost
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
                processes.end([request["pid"]])  # what it has started goes when it is reaped
            case "lose_node":
                processes.end([pid for pid, on in self._workers.items() if on == request["node"]])
            case _:
                pass  # for a worker that has ended

    def import_now(self, modules: Sequence[str]) -> None:
        """Import what workers need; of what cannot be imported, that is printed."""
        with _looking_up(self._leave_if_alone):
            for module in modules:
                try:
                    importlib.import_module(module)
                except Exception as error:  # noqa: BLE001  # importing runs anybody's code
                    # The worker will meet it as well, where its log tells more.
                    sys.stderr.write(f"holdfast: {module} cannot be imported: {error!r}\n")
        self._note_import()

    def import_of_user(self, modules: Sequence[str]) -> str | None:
        """Import modules of the user's; return why nothing may be forked any more, None if it may.

        What was there before is not told of: a driver that is forked was looked at.
        """
        new = [module for module in modules if module not in sys.modules]
        if not new or why_forks_break() is not None:
            return None
        try:
            with _looking_up(self._leave_if_alone):
                for module in new:
                    importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001  # SystemExit, too, is no end of ours
            return f"its import raised {error!r}"
        if (reason := why_forks_break()) is not None:
            return reason
        self._note_import()
        if (trial := fork()) == 0:
            os._exit(0)
        strays = stray_threads()
        os.waitpid(trial, 0)
        return f"threads of native libraries run in it: {', '.join(strays)}" if strays else None

    def _note_import(self) -> None:
        get_ready()
        self._strays = None
        gc.freeze()  # what is not looked at is not copied, so workers go on sharing it

    def _patience_s(self) -> float | None:
        """Return how long it must be quiet until something is imported, None if nothing is."""
        if not self._later or self._later_from == float("inf"):
            return None
        return max(0.0, max(self._later_from, self._quiet_from) - time.monotonic())

    def _import_one(self) -> None:
        """Import the next module of those that can wait.

        Whatever it raises must not end this process, and with it all workers. Nor is it worth a
        line among theirs: whoever needs the module will meet it as well.
        """
        if not self._later:
            return
        module = self._later.pop(0)
        self._is_importing = True
        try:
            with _looking_up(self._look_up):
                importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001
            log.debug("%s cannot be imported ahead: %r", module, error)
        finally:
            self._is_importing = False
        self._note_import()
        while self._put_off:
            self._fork(*self._put_off.pop(0))

    def _look_up(self) -> None:
        """Attend to what cannot wait for an import, between two of its steps."""
        if not self._is_importing or self._is_looking_up:
            return
        self._is_looking_up = True
        try:
            self._attend(self._wait(0))
            self._leave_if_alone()
        finally:
            self._is_looking_up = False

    def _leave_if_alone(self) -> None:
        """End here if the driver is gone: the module may be one whose import never ends."""
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
            self._tell({"event": "not forked", "id": request["id"], "error": error.strerror})
            return
        if pid == 0:
            self._let_go()
            become_worker(request, handles, parent)
        handles.close()
        self._workers[pid] = request["node"]
        self._later_from = min(self._later_from, time.monotonic() + self._later_after_s)
        if self._strays is None:  # only an import can start one
            self._strays = stray_threads()
        told = {"event": "forked", "id": request["id"], "pid": pid}
        self._tell(told | {"threads": self._strays})

    def _let_go(self) -> None:
        """Close what is the zygote's own, in a worker."""
        signal.set_wakeup_fd(-1)
        self._selector.close()
        for end in (self._control, self._wake_read, self._wake_write):
            end.close()
        for handle in [*self._handed, *self._ends]:
            os.close(handle)

    # ------------------------------------------------------------------ ends

    def _reap(self) -> None:
        """Tell of every child that has ended, and end what it left behind."""
        while True:
            try:
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if child is None:
                return
            pid = child.si_pid
            # To be had only while the dead is not reaped; of interest only if it was killed.
            cgroup = "" if child.si_code == os.CLD_EXITED else _cgroup(pid)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if pid not in self._workers:
                continue  # something that a worker left and we adopted
            del self._workers[pid]
            end_orphans(self._workers)
            self._tell({"event": "ended", "pid": pid, "code": code, "cgroup": cgroup})

    def _end_everything(self) -> None:
        processes.end(self._workers)
        for pid in self._workers:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        end_orphans()

    # ------------------------------------------------------------------ telling

    def _tell(self, event: dict[str, Any]) -> None:
        self._unsent += json.dumps(event).encode() + b"\n"
        self._send()

    def _send(self) -> None:
        """Pass on what the driver will take now; it may be busy telling us something."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._control.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""  # the driver is gone, as the next read will show
        more = selectors.EVENT_WRITE if self._unsent else 0
        self._selector.modify(self._control, selectors.EVENT_READ | more)


@contextlib.contextmanager
def _looking_up(look: Callable[[], None]) -> Iterator[None]:
    """Have `look` called every now and then, between two steps of what is done meanwhile."""
    signal.signal(signal.SIGALRM, lambda *_: look())
    # Again and again: one alarm alone may come just before the import waits for something.
    signal.setitimer(signal.ITIMER_REAL, LOOK_UP_S, LOOK_UP_S)
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
    """Be the keeper of a zygote, in the process that `driver` has started for it.

    The zygote imports `modules` before it forks anything, and those of the user's, too, unless
    forks would not survive it.
    """
    this = os.getpid()

    def be_zygote(is_first: bool) -> None:  # noqa: FBT001
        code = 1
        try:
            _serve(control, driver, this, modules, of_user if is_first else ())
            code = 0
        except _Unfit:
            code = keeper.UNFIT
        except BaseException:  # noqa: BLE001  # nothing may get out: the stack is the driver's
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
    """Be the zygote of `driver` until that is gone."""
    os.setsid()
    processes.adopt_orphans()
    # To see that the driver is gone, it must be awake; who was put to sleep is woken by this.
    processes.be_signalled_when_parent_ends(signal.SIGCONT)
    hold_back_signals()
    get_ready()
    zygote = Zygote(control, driver, parent)
    zygote.import_now(modules)
    if (reason := zygote.import_of_user(of_user)) is not None:
        told = {"event": "unfit", "modules": list(of_user), "reason": reason}
        control.sendall(json.dumps(told).encode() + b"\n")
        raise _Unfit
    zygote.serve()

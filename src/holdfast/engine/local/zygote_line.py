"""The driver's end of the line to its zygote, and the two ways to make one.

*Fork*: the zygote is a fork of the driver, with everything the driver has imported; it costs
milliseconds. *Spawn*: it is a new interpreter that imports all over again; that is always safe. A
driver that can be forked safely is, any other one spawns.
"""

from __future__ import annotations

import array
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeAlias

from holdfast import settings
from holdfast.engine import processes
from holdfast.engine.base import EngineError
from holdfast.engine.local import forking, keeper, zygote
from holdfast.engine.local.preload import to_preload
from holdfast.engine.local.worker_process import Handles
from holdfast.engine.local.zygote_output import PRINTED_LAST, Printed
from holdfast.errors import ConfigError

log = logging.getLogger(__name__)

Start = Literal["fork", "spawn"]
Imports: TypeAlias = tuple[list[str], list[str]]  # of the trainer's and ours, and of the user's
SEND_TIMEOUT_S = 60.0
END_PATIENCE_S = 10.0
LATER_AFTER_S = 5.0  # by then the first workers have loaded what they need, and are at work


class ZygoteLine:
    """A zygote that runs, as its driver knows it. Any thread may ask; one thread hears.

    Args:
        modules: What it is to import, if it cannot be there already.
        start: How to make it; None for what HOLDFAST_START says, or the quickest safe way.
        of_user: Modules of the user's that it is to import as well, if it can be forked after it.
        later: What it is to import after the first workers, when there is nothing else to do.

    Attributes:
        pid: Its keeper, which is our child.
        start: How it was made.
        is_gone: Whether it will not tell of anything any more.
    """

    def __init__(
        self,
        modules: Sequence[str],
        start: Start | None = None,
        *,
        of_user: Sequence[str] = (),
        later: Sequence[str] = (),
    ) -> None:
        self._lock = threading.Lock()
        self._received = b""
        self._printed = Printed()
        self.is_gone = False
        self._code: int | None = None
        imports = to_preload(modules), list(of_user)
        try:
            made = _new_zygote(start or _chosen_start(), imports, self._printed.handle)
        except BaseException:
            self._printed.close()
            raise
        self._socket, self.pid, self.start = made
        self._socket.settimeout(SEND_TIMEOUT_S)
        if self.start == "spawn":
            self._send(_beginning(imports))
        self._ask({"do": "import later", "modules": list(later), "after_s": LATER_AFTER_S})

    def fileno(self) -> int:
        return self._socket.fileno()

    def fork(
        self, number: int, node: str, entry: str, environment: Mapping[str, str], handles: Handles
    ) -> None:
        """Ask for a worker; `hear` will tell what became of request `number`."""
        request = {"do": "fork", "id": number, "node": node, "entry": entry}
        self._ask(request | {"environment": dict(environment)}, handles)

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a worker, not to what it has started; to one that ended, nothing."""
        self._ask({"do": "signal", "pid": pid, "signal": int(number)})

    def kill_worker(self, pid: int) -> None:
        """Kill a worker and what it has started."""
        self._ask({"do": "kill", "pid": pid})

    def lose_node(self, node: str) -> None:
        """Kill every worker of a node and what it has started."""
        self._ask({"do": "lose_node", "node": node})

    def _ask(self, request: dict[str, Any], handles: Sequence[int] = ()) -> None:
        self._send(json.dumps(request).encode() + b"\n", handles)

    def _send(self, data: bytes, handles: Sequence[int] = ()) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handles))]
        with self._lock:
            if self.is_gone:
                return
            try:
                sent = self._socket.sendmsg([data], rights if handles else [])
                self._socket.sendall(memoryview(data)[sent:])
            except OSError:
                # Also if it does not take requests any more: half of one has been sent.
                self.is_gone = True

    def hear(self) -> list[dict[str, Any]]:
        """Return what the zygote has told; `is_gone` says whether it will tell more."""
        if self.is_gone:
            return []
        try:
            data = self._socket.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.is_gone = True
            return []
        self._printed.pass_on()
        *lines, self._received = (self._received + data).split(b"\n")
        events = [json.loads(line) for line in lines]
        for event in events:
            if event["event"] == "unfit":
                named = ", ".join(event["modules"])
                log.warning("every worker imports %s itself: %s", named, event["reason"])
        return [event for event in events if event["event"] != "unfit"]

    def close(self) -> None:
        """Let it end, and wait until it has; everything it forked is gone then."""
        self.is_gone = True
        self._socket.close()
        self._code = _wait(self.pid)
        self._printed.close()

    def kill(self) -> None:
        """End a zygote that does not answer; the kernel ends its workers with it."""
        self.is_gone = True
        _ask_to_end(self.pid)

    def epitaph(self) -> str:
        """Return how a zygote that is closed has ended, and the last that it printed."""
        how = "nobody knows how" if self._code is None else keeper.how_it_ended(self._code)
        last = self._printed.last_lines
        return f"{how}, {PRINTED_LAST}\n{last}" if last else how


def _chosen_start() -> Start | None:
    match settings.start_method():
        case None | "fork" | "spawn" as chosen:
            return chosen
        case other:
            raise ConfigError(
                f"HOLDFAST_START={other!r} in the environment: it is 'fork' or 'spawn'",
                hint="unset it, and the quickest way that is safe is used",
            )


def _new_zygote(
    start: Start | None, imports: Imports, printed: int
) -> tuple[socket.socket, int, Start]:
    """Return the line to a new zygote, the process of its keeper, and how it was made."""
    reason = None
    try:
        if start != "spawn":
            made = _forked_zygote(imports, printed)
            if not isinstance(made, str):
                return *made, "fork"
            reason = made
        if start != "fork":
            log.debug("the zygote is a new interpreter: %s", reason or "that was asked for")
            return *_spawned_zygote(imports, printed), "spawn"
    except OSError as error:
        raise EngineError(
            f"the zygote, which workers are forked from, cannot be started: {error.strerror}",
            hint="check memory and the limits on processes and open files (ulimit -a)",
        ) from error
    raise EngineError(
        f"start='fork': this process cannot be forked safely: {reason}",
        hint="leave it out, and the zygote will be a new interpreter",
    )


def _forked_zygote(imports: Imports, printed: int) -> tuple[socket.socket, int] | str:
    """Return the line to a fork of this process and its number, or why there is none."""
    if (reason := forking.why_not_forkable()) is not None:
        return reason
    driver = os.getpid()
    line, theirs = socket.socketpair()
    with theirs:
        try:
            pid = forking.fork()
        except OSError as error:  # no memory for another one of this size, perhaps
            line.close()
            return str(error)
        if pid == 0:
            _be_forked(theirs, driver, imports, printed)
    if strays := forking.stray_threads():
        line.close()
        _ask_to_end(pid)
        _wait(pid)
        return f"{len(strays)} threads of native libraries run in it"
    return line, pid


def _be_forked(control: socket.socket, driver: int, imports: Imports, printed: int) -> NoReturn:
    try:
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        forking.forget_driver(control.fileno())
        zygote.serve(control, driver, *imports)
    except BaseException:  # noqa: BLE001  # nothing may get out of here: the stack is the driver's
        traceback.print_exc()
    finally:
        os._exit(1)


# What a new interpreter does first. It finds modules where this process finds them, and nowhere
# else: a training function comes from a module beside the user's script as often as from an
# installed one; and a file of the folder we happen to be in must not pass for one of Python's.
# Where that is comes over the socket: what is on a command line must be short.
_PROGRAM = """
import json, socket, sys
handle, driver, size = map(int, sys.argv[1:])
line, told = socket.socket(fileno=handle), bytearray()
while len(told) < size:
    told += line.recv(size - len(told)) or sys.exit("the driver is gone")
told = json.loads(told)
sys.path[:], sys.argv[:] = told["path"], told["arguments"]
from holdfast.engine.local import zygote
zygote.serve(line, driver, told["modules"], told["of_user"])
"""


def _beginning(imports: Imports) -> bytes:
    """Return what a new interpreter is told first; of both lists, what is a path or text."""
    modules, of_user = imports
    told = {
        "path": _texts(sys.path),
        "arguments": _texts(getattr(sys, "argv", ())),
        "modules": modules,
        "of_user": of_user,
    }
    return json.dumps(told).encode()


def _texts(values: Iterable[object]) -> list[str]:
    """Return those that are text, and paths as text; Python passes over others in `sys.path`."""
    found = (os.fspath(one) if isinstance(one, os.PathLike) else one for one in values)
    return [one for one in found if isinstance(one, str)]


def _spawned_zygote(imports: Imports, printed: int) -> tuple[socket.socket, int]:
    """Return the line to a new interpreter that serves this process, and its number.

    It waits for `_beginning` over that line.
    """
    line, theirs = socket.socketpair()
    size = len(_beginning(imports))
    numbers = [str(number) for number in (theirs.fileno(), os.getpid(), size)]
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, *numbers],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )
        except OSError:
            line.close()
            raise
    process.returncode = 0  # it is ours to wait for, not Popen's to complain about
    return line, process.pid


def _ask_to_end(pid: int) -> None:
    """Have a keeper end its zygote and everything; if it was put to sleep, it is woken for it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, keeper.END)
    processes.wake(pid)


def _wait(pid: int) -> int | None:
    """Wait until a child has ended, and return its exit code, minus the signal if by one.

    One that takes too long is killed. None if somebody else has waited for it.
    """
    if not processes.wait_for_end(pid, END_PATIENCE_S):
        processes.end([pid])
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # somebody waits for all children
        return None

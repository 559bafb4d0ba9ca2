"""The driver's connection to its zygote, and the two ways to start one.

*Fork*: the zygote is a fork of the driver, with everything the driver has imported; it costs
milliseconds. *Spawn*: it is a new interpreter that imports everything again, which is always safe.
A driver is forked if that is safe, else it spawns.
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
from holdfast.engine.local.stacks import new_file
from holdfast.engine.local.worker_process import Handles
from holdfast.errors import ConfigError

log = logging.getLogger(__name__)

Start = Literal["fork", "spawn"]
Imports: TypeAlias = tuple[list[str], list[str]]  # the trainer's and ours, and the user's
SEND_TIMEOUT_S = 60.0
END_PATIENCE_S = 10.0
LATER_AFTER_S = 5.0  # by then the first workers have loaded what they need, and are at work
PRINTED_LAST = "and printed last:"
PRINTED_LINES_MAX = 5
_READ_BYTES = 1 << 16

# Modules that a zygote imports if its driver has. Each was tried (numpy 2.4, pandas 3.1,
# pyarrow 26, torch 2.13): after its import a fork has one thread, and the library works in the
# fork with as many threads as ever. OpenBLAS (numpy) ends its threads for a fork and starts them
# again; jemalloc (pyarrow) starts its thread again in the child; torch and its OpenMP have none
# before the first computation.
SAFE_TO_PRELOAD = ("numpy", "pandas", "pyarrow", "torch")


def to_preload(modules: Sequence[str]) -> list[str]:
    """Return what a zygote of this process should import, each module once."""
    wanted = [*modules, *(name for name in SAFE_TO_PRELOAD if name in sys.modules)]
    return list(dict.fromkeys(wanted))


class ZygoteLine:
    """A running zygote. Any thread may send requests; one thread calls `hear`.

    Args:
        modules: Modules to import first.
        start: How to start it; None for what HOLDFAST_START says, or the quickest safe way.
        of_user: Modules of the user's to import as well, if it can be forked afterwards.
        later: Modules to import after the first workers, when there is nothing else to do.

    Attributes:
        pid: Its keeper, which is our child.
        start: How it was started.
        is_gone: Whether no more events come from it.
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
            self._send(_setup_message(imports))
        self._ask({"do": "import later", "modules": list(later), "after_s": LATER_AFTER_S})

    def fileno(self) -> int:
        return self._socket.fileno()

    def fork(
        self, number: int, node: str, entry: str, environment: Mapping[str, str], handles: Handles
    ) -> None:
        """Request a worker; an event from `hear` answers request `number`."""
        request = {"do": "fork", "id": number, "node": node, "entry": entry}
        self._ask(request | {"environment": dict(environment)}, handles)

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a worker alone; nothing happens if it has ended."""
        self._ask({"do": "signal", "pid": pid, "signal": int(number)})

    def kill_worker(self, pid: int) -> None:
        """Kill a worker and everything it has started."""
        self._ask({"do": "kill", "pid": pid})

    def lose_node(self, node: str) -> None:
        """Kill every worker of a node and everything they have started."""
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
                # Also after a timeout: half of a request has been sent.
                self.is_gone = True

    def hear(self) -> list[dict[str, Any]]:
        """Return the events that the zygote has sent; `is_gone` is set when no more will come."""
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
        """Hang up, which ends the zygote, and wait until it and all it has forked are gone."""
        self.is_gone = True
        self._socket.close()
        self._code = _wait(self.pid)
        self._printed.close()

    def kill(self) -> None:
        """End a zygote that does not answer; the kernel ends its workers with it."""
        self.is_gone = True
        _request_end(self.pid)

    def epitaph(self) -> str:
        """Return how a closed zygote ended, and the last lines that it printed."""
        end = "its exit code is unknown" if self._code is None else keeper.how_it_ended(self._code)
        last = self._printed.last_lines
        return f"{end}, {PRINTED_LAST}\n{last}" if last else end


class Printed:
    """A file without a name that a zygote prints to; the driver reads it.

    Attributes:
        handle: The file, open for appending.
        last_lines: The last lines that were passed on.
    """

    def __init__(self) -> None:
        self.handle = new_file()
        self.last_lines = ""
        self._read_up_to = 0

    def pass_on(self) -> None:
        """Print to stderr what was printed since the last time."""
        while data := os.pread(self.handle, _READ_BYTES, self._read_up_to):
            self._read_up_to += len(data)
            text = data.decode(errors="replace")
            with contextlib.suppress(OSError, ValueError, AttributeError):  # nothing reads it
                sys.stderr.write(text)
            lines = [line for line in (self.last_lines + text).splitlines() if line.strip()]
            self.last_lines = "\n".join(lines[-PRINTED_LINES_MAX:])

    def close(self) -> None:
        """Print what is left, and close the file."""
        self.pass_on()
        os.close(self.handle)


def _chosen_start() -> Start | None:
    match settings.start_method():
        case None | "fork" | "spawn" as start:
            return start
        case unknown:
            raise ConfigError(
                f"HOLDFAST_START={unknown!r} in the environment: must be 'fork' or 'spawn'",
                hint="unset it to use the quickest way that is safe",
            )


def _new_zygote(
    start: Start | None, imports: Imports, printed: int
) -> tuple[socket.socket, int, Start]:
    """Return the socket of a new zygote, the pid of its keeper, and how it was started."""
    reason = None
    try:
        if start != "spawn":
            made = _forked_zygote(imports, printed)
            if not isinstance(made, str):
                return *made, "fork"
            reason = made
        if start != "fork":
            log.debug("the zygote is a new interpreter: %s", reason or "as requested")
            return *_spawned_zygote(imports, printed), "spawn"
    except OSError as error:
        raise EngineError(
            f"the zygote, which workers are forked from, cannot be started: {error.strerror}",
            hint="check memory and the limits on processes and open files (ulimit -a)",
        ) from error
    raise EngineError(
        f"start='fork': this process cannot be forked safely: {reason}",
        hint="leave it out to start a new interpreter instead",
    )


def _forked_zygote(imports: Imports, printed: int) -> tuple[socket.socket, int] | str:
    """Return the socket and pid of a fork of this process, or why there is none."""
    if (reason := forking.why_not_forkable()) is not None:
        return reason
    driver = os.getpid()
    line, theirs = socket.socketpair()
    with theirs:
        try:
            pid = forking.fork()
        except OSError as error:  # perhaps no memory for another process of this size
            line.close()
            return str(error)
        if pid == 0:
            _serve_fork(theirs, driver, imports, printed)
    if strays := forking.stray_threads():
        line.close()
        _request_end(pid)
        _wait(pid)
        return f"it runs {len(strays)} threads of native libraries"
    return line, pid


def _serve_fork(control: socket.socket, driver: int, imports: Imports, printed: int) -> NoReturn:
    try:
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        forking.forget_driver(control.fileno())
        zygote.serve(control, driver, *imports)
    except BaseException:  # noqa: BLE001  # nothing may escape: the stack is the driver's
        traceback.print_exc()
    finally:
        os._exit(1)


# The program of a new interpreter. It finds modules where this process finds them, and nowhere
# else: a training function often comes from a module beside the user's script, and a file in the
# current folder must not hide a module of Python's. That comes over the socket, because it may be
# too long for a command line.
_PROGRAM = """
import json, socket, sys
handle, driver, size = map(int, sys.argv[1:])
line, data = socket.socket(fileno=handle), bytearray()
while len(data) < size:
    data += line.recv(size - len(data)) or sys.exit("the driver is gone")
setup = json.loads(data)
sys.path[:], sys.argv[:] = setup["path"], setup["arguments"]
from holdfast.engine.local import zygote
zygote.serve(line, driver, setup["modules"], setup["of_user"])
"""


def _setup_message(imports: Imports) -> bytes:
    """Return the first message to a new interpreter: where to look for modules, what to import."""
    modules, of_user = imports
    setup = {
        "path": _texts(sys.path),
        "arguments": _texts(getattr(sys, "argv", ())),
        "modules": modules,
        "of_user": of_user,
    }
    return json.dumps(setup).encode()


def _texts(values: Iterable[object]) -> list[str]:
    """Return texts, and paths as texts; Python, too, ignores anything else in `sys.path`."""
    texts = (os.fspath(value) if isinstance(value, os.PathLike) else value for value in values)
    return [text for text in texts if isinstance(text, str)]


def _spawned_zygote(imports: Imports, printed: int) -> tuple[socket.socket, int]:
    """Return the socket and pid of a new interpreter, which waits for `_setup_message`."""
    line, theirs = socket.socketpair()
    size = len(_setup_message(imports))
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
    process.returncode = 0  # we wait for it ourselves, so Popen must not warn
    return line, process.pid


def _request_end(pid: int) -> None:
    """Make a keeper end its zygote and everything else; wakes it if it was put to sleep."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, keeper.END)
    processes.wake(pid)


def _wait(pid: int) -> int | None:
    """Wait for the end of a child; return its exit code, or minus the signal that killed it.

    A child that takes too long is killed. Returns None if its exit code was already collected.
    """
    if not processes.wait_for_end(pid, END_PATIENCE_S):
        processes.end([pid])
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # some other code waits for all children
        return None

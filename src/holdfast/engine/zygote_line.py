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
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn

from holdfast import settings
from holdfast.engine import forking, processes, zygote
from holdfast.engine.base import EngineError
from holdfast.engine.preload import to_preload
from holdfast.engine.worker_process import Handles
from holdfast.errors import ConfigError

log = logging.getLogger(__name__)

Start = Literal["fork", "spawn"]
SEND_TIMEOUT_S = 60.0
END_PATIENCE_S = 10.0
LATER_AFTER_S = 5.0  # by then the first workers have loaded what they need, and are at work


class ZygoteLine:
    """A zygote that runs, as its driver knows it. Any thread may ask; one thread hears.

    Args:
        modules: What it is to import, if it cannot be there already.
        start: How to make it; None for what HOLDFAST_START says, or the quickest safe way.
        later: What it is to import after the first workers, when there is nothing else to do.
    """

    def __init__(
        self, modules: Sequence[str], start: Start | None = None, *, later: Sequence[str] = ()
    ) -> None:
        self._lock = threading.Lock()
        self._received = b""
        self.is_gone = False
        self._socket, self.pid, self.start = _new_zygote(start or _chosen_start())
        self._socket.settimeout(SEND_TIMEOUT_S)
        self._ask({"do": "import", "modules": to_preload(modules)})
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
        line = json.dumps(request).encode() + b"\n"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handles))]
        with self._lock:
            if self.is_gone:
                return
            try:
                sent = self._socket.sendmsg([line], rights if handles else [])
                self._socket.sendall(line[sent:])
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
        *lines, self._received = (self._received + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Let it end, and wait until it has; everything it forked is gone then."""
        self.is_gone = True
        self._socket.close()
        _wait(self.pid)

    def kill(self) -> None:
        """End a zygote that does not answer; the kernel ends its workers with it."""
        self.is_gone = True
        processes.end([self.pid])


def _chosen_start() -> Start | None:
    match settings.start_method():
        case None | "fork" | "spawn" as chosen:
            return chosen
        case other:
            raise ConfigError(
                f"HOLDFAST_START={other!r} in the environment: it is 'fork' or 'spawn'",
                hint="unset it, and the quickest way that is safe is used",
            )


def _new_zygote(start: Start | None) -> tuple[socket.socket, int, Start]:
    """Return the line to a new zygote, its process, and how it was made."""
    reason = None
    try:
        if start != "spawn":
            made = _forked_zygote()
            if not isinstance(made, str):
                return *made, "fork"
            reason = made
        if start != "fork":
            log.debug("the zygote is a new interpreter: %s", reason or "that was asked for")
            return *_spawned_zygote(), "spawn"
    except OSError as error:
        raise EngineError(
            f"the zygote, which workers are forked from, cannot be started: {error.strerror}",
            hint="check memory and the limits on processes and open files (ulimit -a)",
        ) from error
    raise EngineError(
        f"start='fork': this process cannot be forked safely: {reason}",
        hint="leave it out, and the zygote will be a new interpreter",
    )


def _forked_zygote() -> tuple[socket.socket, int] | str:
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
            _be_zygote(theirs, driver)
    if strays := forking.stray_threads():
        line.close()  # it has been asked nothing yet, and ends
        _wait(pid)
        return f"{len(strays)} threads of native libraries run in it"
    return line, pid


def _be_zygote(control: socket.socket, driver: int) -> NoReturn:
    code = 1
    try:
        forking.forget_driver(control.fileno())
        zygote.serve(control, driver)
        code = 0
    except BaseException:  # noqa: BLE001  # nothing may get out of here: the stack is the driver's
        traceback.print_exc()
    finally:
        os._exit(code)


def _spawned_zygote() -> tuple[socket.socket, int]:
    """Return the line to a new interpreter that serves this process, and its number.

    It finds modules where this process finds them, and nowhere else: a training function comes
    from a module beside the user's script as often as from an installed one; and a file of the
    folder we happen to be in must not pass for one of Python's.
    """
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from holdfast.engine import zygote;"
        f" fd, driver = map(int, sys.argv[1:]); sys.argv[:] = {sys.argv!r};"
        " zygote.serve_handle(fd, driver)"
    )
    line, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", code, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            line.close()
            raise
    process.returncode = 0  # it is ours to wait for, not Popen's to complain about
    return line, process.pid


def _wait(pid: int) -> None:
    """Wait until a child has ended; one that takes too long is killed."""
    if not processes.wait_for_end(pid, END_PATIENCE_S):
        processes.end([pid])
    with contextlib.suppress(ChildProcessError):  # somebody waits for all children
        os.waitpid(pid, 0)

"""An engine in a process of its own, which has one thread: there it can fork its driver.

The tests' own process has threads of servers and of pytest's, so an engine inside it must spawn.
`python -m tests.conformance.engine_host` serves calls that come over the socket it is given;
`EngineHost` is who calls.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from holdfast.core.placement import Demand
from holdfast.engine.base import EngineEvent, Node, WorkerSpec
from holdfast.engine.local.engine import LocalEngine
from holdfast.engine.local.zygote_line import Start
from holdfast.engine.log_files import LogFile
from holdfast.engine.nodes import LocalNodes
from holdfast.testing.suites.engine import ENTRY
from holdfast.wire import Message
from tests.patience import PATIENCE_S


def serve(handle: int) -> None:
    """Do what is asked until nobody is left to ask."""
    line = Connection(handle)
    engine: LocalEngine | None = None
    things: dict[str, Any] = {}

    def wake(*_: object) -> None:
        assert engine is not None
        engine.wake()

    signal.signal(signal.SIGUSR1, wake)
    with contextlib.suppress(EOFError):
        while True:
            name, args, kwargs = line.recv()
            try:
                if name == "new":
                    if engine is not None:
                        engine.close()
                    engine = LocalEngine(ENTRY, nodes=LocalNodes(2), start=kwargs["start"])
                    answer: Any = None
                elif name == "execute":
                    exec(args[0], things)
                    answer = things.pop("answer", None)
                else:
                    answer = getattr(engine, name)(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  # the caller will raise it
                line.send((None, error))
            else:
                line.send((answer, None))
    if engine is not None:
        engine.close()


class EngineHost:
    """An `Engine` whose every method is that of the engine in the other process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.conformance.engine_host", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
            )
        self._line = Connection(ours.detach())
        self.pid = self._process.pid

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self._line.send((name, args, kwargs))
        answer, error = self._line.recv()
        if error is not None:
            raise error
        return answer

    def new(self, start: Start | None) -> None:
        """Begin with another engine."""
        self._call("new", start=start)

    def execute(self, program: str) -> Any:
        """Have the other process run some Python, and return what it calls `answer`."""
        return self._call("execute", program)

    def kill(self) -> None:
        """End the process as the kernel would for lack of memory."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """End the process, whether it listens or not."""
        self._line.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def nodes(self) -> Sequence[Node]:
        return self._call("nodes")

    def can_grow(self) -> bool:
        return self._call("can_grow")

    def reserve(self, demand: Demand, workers_min: int, workers_max: int) -> bool:
        return self._call("reserve", demand, workers_min, workers_max)

    def warm_up(self) -> None:
        self._call("warm_up")

    def start_group(self, group: int, workers: Sequence[WorkerSpec]) -> None:
        self._call("start_group", group, workers)

    def send(self, group: int, rank: int, message: Message) -> None:
        self._call("send", group, rank, message)

    def stop_group(self, group: int, *, grace_s: float = 0.0) -> None:
        self._call("stop_group", group, grace_s=grace_s)

    def stacks(self, group: int, timeout_s: float = 5.0) -> Mapping[int, str]:
        return self._call("stacks", group, timeout_s)

    def log(self, group: int, rank: int) -> LogFile:
        return self._call("log", group, rank)  # which no process has opened yet

    def next_event(self, timeout_s: float | None) -> EngineEvent | None:
        return self._call("next_event", timeout_s)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGUSR1)

    def close(self) -> None:
        self._call("close")


if __name__ == "__main__":
    serve(int(sys.argv[1]))

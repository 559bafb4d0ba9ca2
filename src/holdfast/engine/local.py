"""Workers as processes of this machine, forked by a zygote; nodes are names, for trying failures.

All that happens is told by the kernel: a message or the end of a socket makes it readable, and the
zygote hears of a death by SIGCHLD and passes it on. Nothing is polled.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.outcomes import Died, Evicted, Finished, Raised, WorkerExit
from holdfast.engine.base import Ended, EngineError, EngineEvent, Said, WorkerSpec
from holdfast.wire import Channel, LastWords, Message

LAST_LINES = 20
START_TIMEOUT_S = 60.0


@dataclass(slots=True)
class _Worker:
    """A worker that runs, or has run, as this driver knows it."""

    attempt: int
    spec: WorkerSpec
    channel: Channel
    pid: int
    words: LastWords | None = None
    is_stopped: bool = False
    node_lost: bool = False


class LocalEngine:
    """Processes of this machine.

    Args:
        entry: Where a worker begins, `module:function`; it gets the number of its socket.
        modules: What the zygote imports before it forks.
        node_count: How many nodes to pretend to have.
    """

    def __init__(self, entry: str, modules: Sequence[str] = (), node_count: int = 1) -> None:
        self._entry, self._modules = entry, list(modules)
        self._nodes = [f"node-{number}" for number in range(node_count)]
        self._workers: dict[int, _Worker] = {}  # by pid
        self._events: deque[EngineEvent] = deque()
        self._zygote: _ZygoteLine | None = None

    def nodes(self) -> Sequence[str]:
        return self._nodes

    def warm_up(self) -> None:
        """Begin the imports now, so that they are done when the first group starts."""
        if self._zygote is None:
            self._zygote = _ZygoteLine(self._modules)

    def _has_zygote(self) -> bool:
        return self._zygote is not None

    # ------------------------------------------------------------------ groups

    def start_group(self, attempt: int, workers: Sequence[WorkerSpec]) -> None:
        assert not self._workers, "one group at a time"
        self.warm_up()
        assert self._zygote is not None
        ours: dict[int, Channel] = {}
        for spec in workers:
            Path(spec.log).parent.mkdir(parents=True, exist_ok=True)
            mine, theirs = socket.socketpair()
            ours[spec.rank] = Channel(mine)
            ours[spec.rank].send(spec.first)
            with theirs:
                self._zygote.fork(spec, self._entry, theirs)
        specs = {spec.rank: spec for spec in workers}
        deadline = time.monotonic() + START_TIMEOUT_S
        while specs:
            self._hear_zygote(max(0.0, deadline - time.monotonic()))
            if not self._has_zygote() or time.monotonic() > deadline:
                self._abandon(attempt, ours)
                raise EngineError(
                    f"only {len(workers) - len(specs)} of {len(workers)} workers could be started",
                    hint="check memory and the limit on processes (ulimit -u)",
                )
            for rank, pid in self._zygote.take_forked():
                spec = specs.pop(rank)
                self._workers[pid] = _Worker(attempt, spec, ours[rank], pid)
                if (code := self._zygote.ended_early(pid)) is not None:
                    self._note_end(pid, code)

    def _abandon(self, attempt: int, channels: dict[int, Channel]) -> None:
        self.stop_group(attempt)
        for channel in channels.values():
            channel.close()

    def send(self, attempt: int, rank: int, message: Message) -> None:
        for worker in self._workers.values():
            if (worker.attempt, worker.spec.rank) == (attempt, rank):
                worker.channel.send(message)

    def stop_group(self, attempt: int, *, grace_s: float = 0.0) -> None:
        mine = [worker for worker in self._workers.values() if worker.attempt == attempt]
        for worker in mine:
            worker.is_stopped = True
        if grace_s > 0:
            self._signal(mine, signal.SIGTERM)
            deadline = time.monotonic() + grace_s
            while self._are_running(attempt) and (left_s := deadline - time.monotonic()) > 0:
                self._listen(left_s)
        self._signal(mine, signal.SIGKILL)
        while self._are_running(attempt):
            self._listen(None)

    def fail_node(self, node: str) -> None:
        """Lose a node: everything on it dies at once, without a word."""
        on_it = [worker for worker in self._workers.values() if worker.spec.node == node]
        for worker in on_it:
            worker.node_lost = True
        self._signal(on_it, signal.SIGKILL)

    def _signal(self, workers: Sequence[_Worker], number: int) -> None:
        for worker in workers:
            if self._zygote is not None and worker.pid in self._workers:
                self._zygote.signal(worker.pid, number)

    def _are_running(self, attempt: int) -> bool:
        return any(worker.attempt == attempt for worker in self._workers.values())

    # ------------------------------------------------------------------ events

    def next_event(self, timeout_s: float | None) -> EngineEvent | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._events:
            left_s = None if deadline is None else deadline - time.monotonic()
            if (left_s is not None and left_s < 0) or (self._zygote is None and not self._workers):
                return None
            self._listen(left_s)
        return self._events.popleft()

    def _listen(self, timeout_s: float | None) -> None:
        """Take in whatever has come from the workers and the zygote, waiting for the first."""
        channels = {w.channel: w for w in self._workers.values() if not w.channel.is_closed}
        handles: list[Channel | _ZygoteLine] = [*channels]
        if self._zygote is not None:
            handles.append(self._zygote)
        unsent = [channel for channel in channels if channel.has_unsent]
        readable, writable, _ = select.select(handles, unsent, [], timeout_s)
        for channel in writable:
            channel.flush()
        for channel, worker in channels.items():
            if channel in readable:
                self._hear_worker(worker)
        if self._zygote is not None and self._zygote in readable:
            self._hear_zygote(0.0)

    def _hear_worker(self, worker: _Worker) -> None:
        for message in worker.channel.receive():
            if isinstance(message, LastWords):
                worker.words = message
            else:
                self._events.append(Said(worker.attempt, worker.spec.rank, message))

    def _hear_zygote(self, timeout_s: float) -> None:
        assert self._zygote is not None
        if not self._zygote.hear(timeout_s):
            return
        for pid, code in self._zygote.take_ended(self._workers.__contains__):
            self._note_end(pid, code)
        if self._zygote.is_gone:
            self._zygote_died()

    def _note_end(self, pid: int, code: int) -> None:
        worker = self._workers.pop(pid)
        self._hear_worker(worker)  # what it said before it died is still in the socket
        worker.channel.close()
        self._events.append(Ended(worker.attempt, _outcome(worker, code), worker.words))

    def _zygote_died(self) -> None:
        """All workers went down with it; a new one is made for the next group."""
        assert self._zygote is not None
        self._zygote.close()
        self._zygote = None
        for pid in list(self._workers):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # what the workers had started
            self._note_end(pid, -signal.SIGKILL)

    def close(self) -> None:
        for attempt in {worker.attempt for worker in self._workers.values()}:
            self.stop_group(attempt)
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None


def _outcome(worker: _Worker, code: int) -> WorkerExit:
    rank, node, words = worker.spec.rank, worker.spec.node, worker.words
    if worker.node_lost:
        return Died(rank, node, worker.pid, node_lost=True)
    if words is not None and words.error is not None:
        return Raised(rank, node, words.error, words.trace)
    if words is not None:
        return Finished(rank, node)
    if worker.is_stopped:
        return Evicted(rank, node)
    lines = _last_lines(worker.spec.log)
    if code < 0:
        return Died(rank, node, worker.pid, signal=-code, last_lines=lines)
    return Died(rank, node, worker.pid, exit_code=code, last_lines=lines)


def _last_lines(log: str) -> tuple[str, ...]:
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            return tuple(file.read().decode(errors="replace").splitlines()[-LAST_LINES:])
    except FileNotFoundError:
        return ()


def _zygote_code() -> str:
    """Return a program that finds modules where this process finds them, and nowhere else.

    A training function comes from a module beside the user's script as often as from an installed
    one; and a file of the folder we happen to be in must not pass for one of Python's.
    """
    return (
        f"import sys; sys.path[:] = {sys.path!r}; from holdfast.engine.zygote import main; main()"
    )


class _ZygoteLine:
    """The driver's end of the line to its zygote."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _zygote_code(), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._buffer = b""
        self._forked: list[tuple[int, int]] = []
        self._ended: dict[int, int] = {}
        self.is_gone = False
        if modules:
            self._ask({"do": "import", "modules": list(modules)})

    def fileno(self) -> int:
        return self._socket.fileno()

    def fork(self, spec: WorkerSpec, entry: str, channel: socket.socket) -> None:
        request = {
            "do": "fork",
            "id": spec.rank,
            "entry": entry,
            "log": os.path.abspath(spec.log),
            "environment": dict(spec.environment),
        }
        self._ask(request, [channel.fileno()])

    def signal(self, pid: int, number: int) -> None:
        self._ask({"do": "signal", "pid": pid, "signal": int(number)})

    def _ask(self, request: dict[str, Any], handles: Sequence[int] = ()) -> None:
        line = json.dumps(request).encode() + b"\n"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handles))]
        try:
            sent = self._socket.sendmsg([line], rights if handles else [])
            self._socket.sendall(line[sent:])
        except OSError:
            self.is_gone = True

    def hear(self, timeout_s: float) -> bool:
        """Take in what the zygote tells, waiting a while; return whether there was anything."""
        if self.is_gone:
            return True
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return False
        try:
            data = self._socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.is_gone = True
            return True
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if told["event"] == "forked":
                self._forked.append((told["id"], told["pid"]))
            elif told["event"] == "ended":
                self._ended[told["pid"]] = told["code"]
        return True

    def take_forked(self) -> list[tuple[int, int]]:
        """Return the workers forked since the last time, as rank and process."""
        forked, self._forked = self._forked, []
        return forked

    def ended_early(self, pid: int) -> int | None:
        """Return how a worker ended, if it did before it was known to be forked."""
        return self._ended.pop(pid, None)

    def take_ended(self, is_known: Callable[[int], bool]) -> list[tuple[int, int]]:
        """Return how the known workers ended, since the last time."""
        known = [pid for pid in self._ended if is_known(pid)]
        return [(pid, self._ended.pop(pid)) for pid in known]

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

"""The driver's side of a local worker: its channel, its log, and how it ended."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.channel import Channel
from holdfast.core.failure.stacks import crash_report
from holdfast.core.run.outcomes import Died, Evicted, Finished, Raised, WorkerExit
from holdfast.engine import processes
from holdfast.engine.base import EngineError, EngineEvent, Said, WorkerSpec
from holdfast.engine.local.stacks import new_file
from holdfast.engine.local.worker_process import Handles
from holdfast.wire import LastWords

log = logging.getLogger(__name__)

LAST_LINES = 20
LAST_LINES_BYTES = 8192
CRASH_BYTES = 1 << 18  # a crash prints the stacks of all threads
END_PATIENCE_S = 30.0  # the zygote may be busy with an import, or with orphans of a worker
LOOK_EVERY_S = 1.0


@dataclass(slots=True)
class LocalWorker:
    """A worker that is being forked, runs, or has run."""

    group: int
    spec: WorkerSpec
    channel: Channel
    handle: int  # the channel's, also when that is closed
    questions: int  # a pipe; the thread that reports the worker's stacks reads from it
    stacks: int
    pid: int = 0
    words: LastWords | None = None
    is_stopped: bool = False
    node_lost: bool = False
    listened_for: int = 0  # the selector events registered for its channel
    log: str = field(init=False)  # the file it prints to now

    def __post_init__(self) -> None:
        self.log = self.spec.log


def new_worker(group: int, spec: WorkerSpec) -> tuple[LocalWorker, Handles]:
    """Return a worker to be forked, and the handles to pass to it.

    The caller closes these, except for the stack file, which the worker keeps using.
    """
    with contextlib.ExitStack() as opened:
        mine, theirs = socket.socketpair()
        opened.enter_context(mine)
        opened.enter_context(theirs)
        log = open_log(spec)
        opened.callback(os.close, log)
        questions, ask = os.pipe()
        opened.callback(os.close, questions)
        opened.callback(os.close, ask)
        os.set_blocking(ask, False)
        stacks = new_file()
        opened.pop_all()  # nothing can fail any more
    channel = Channel(mine, unsent_bytes_max=None)
    worker = LocalWorker(group, spec, channel, mine.fileno(), ask, stacks)
    return worker, Handles(theirs.detach(), log, questions, stacks)


class AwaitedEnds:
    """Workers that have hung up and whose end the zygote has not reported yet."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}  # by process

    def add(self, pid: int) -> None:
        self._since.setdefault(pid, time.monotonic())

    def remove(self, pid: int) -> None:
        self._since.pop(pid, None)

    def are_overdue(self) -> bool:
        """Whether a worker ended so long ago that the zygote should have reported it."""
        if not self._since:
            return False
        late = time.monotonic() - END_PATIENCE_S
        return any(
            since <= late and not processes.facts(pid).is_running
            for pid, since in self._since.items()
        )

    def patience_s(self, timeout_s: float | None) -> float | None:
        """Return how long to wait for events before `are_overdue` is to be asked again."""
        if not self._since:
            return timeout_s
        return LOOK_EVERY_S if timeout_s is None else min(LOOK_EVERY_S, timeout_s)


def listen_to(worker: LocalWorker, selector: selectors.BaseSelector) -> None:
    """Register a worker's channel for reading, and for writing while something is unsent."""
    channel = worker.channel
    writing = selectors.EVENT_WRITE if channel.has_unsent else 0
    wanted = 0 if channel.is_closed else selectors.EVENT_READ | writing
    if wanted == worker.listened_for:
        return
    if not wanted:
        selector.unregister(worker.handle)
    elif worker.listened_for:
        selector.modify(worker.handle, wanted, worker)
    else:
        selector.register(worker.handle, wanted, worker)
    worker.listened_for = wanted


def take_messages(worker: LocalWorker, events: deque[EngineEvent]) -> bool:
    """Add messages that a worker has sent to `events`; return whether there were any."""
    messages = worker.channel.receive()
    for message in messages:
        if isinstance(message, LastWords):
            worker.words = message
        else:
            events.append(Said(worker.group, worker.spec.rank, message))
    return bool(messages)


def warn_of_threads(rank: int, threads: Sequence[str]) -> None:
    """Log a warning if a worker was forked from a process that has other threads."""
    if threads:
        log.warning(
            "rank %d was forked from a process with %d threads (%s) and may hang",
            rank,
            len(threads) + 1,
            ", ".join(threads),
        )


def outcome(worker: LocalWorker, code: int) -> WorkerExit:
    """Return how a worker ended, given its exit code, or minus the signal that killed it."""
    rank, node, words = worker.spec.rank, worker.spec.node, worker.words
    if worker.node_lost:
        return Died(rank, node, worker.pid, node_lost=True)
    if words is not None and words.error is not None:
        return Raised(rank, node, words.error, words.trace)
    if words is not None:
        return Finished(rank, node)
    if worker.is_stopped:
        return Evicted(rank, node)
    lines = _last_lines(worker.log)
    if code < 0:
        return Died(rank, node, worker.pid, signal=-code, last_lines=lines)
    return Died(rank, node, worker.pid, exit_code=code, last_lines=lines)


def open_log(spec: WorkerSpec) -> int:
    """Return a worker's log, open for appending; its folder is created."""
    try:
        Path(spec.log).parent.mkdir(parents=True, exist_ok=True)
        return os.open(spec.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        too_many = error.errno in (errno.EMFILE, errno.ENFILE)
        raise EngineError(
            f"the log of rank {spec.rank} cannot be written to {spec.log}: {error.strerror}",
            hint="check the limit on open files (ulimit -n)"
            if too_many
            else "check space and permissions there; logs are with the run if its storage is on"
            " this machine, and else in HOLDFAST_LOG_DIR",
        ) from error


def _last_lines(log: str) -> tuple[str, ...]:
    """Return the last lines of a log; after a crash of native code, only that thread's stack."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - CRASH_BYTES))
            text = file.read()
    except OSError:
        return ()
    if crash := crash_report(text.decode(errors="replace").splitlines()):
        return tuple(crash)
    last = text[-LAST_LINES_BYTES:].decode(errors="replace")
    return tuple(last.splitlines()[-LAST_LINES:])

"""A worker of the local engine, as its driver knows it: its files, and how it ended."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.channel import Channel
from holdfast.core.failure.stacks import crash_report
from holdfast.core.run.outcomes import Died, Evicted, Finished, Raised, WorkerExit
from holdfast.engine import processes
from holdfast.engine.base import EngineError, WorkerSpec
from holdfast.engine.local.stacks import new_file
from holdfast.engine.local.worker_process import Handles
from holdfast.engine.local.zygote_output import PRINTED_LAST
from holdfast.wire import LastWords

log = logging.getLogger(__name__)

LAST_LINES = 20
LAST_LINES_BYTES = 8192
CRASH_BYTES = 1 << 18  # a crash prints the stacks of all threads
TELL_PATIENCE_S = 30.0  # the zygote may be busy with what a worker has left behind, or import
LOOK_S = 1.0


@dataclass(slots=True)
class LocalWorker:
    """A worker that is being forked, runs, or has run, as this driver knows it."""

    group: int
    spec: WorkerSpec
    channel: Channel
    handle: int  # the channel's, also when that is closed
    questions: int  # its thread that says where it stands reads at the other end
    stacks: int
    pid: int = 0
    words: LastWords | None = None
    is_stopped: bool = False
    node_lost: bool = False
    heeded: int = 0  # what the engine listens for on its channel
    log: str = field(init=False)  # where it prints now

    def __post_init__(self) -> None:
        self.log = self.spec.log


def new_worker(group: int, spec: WorkerSpec) -> tuple[LocalWorker, Handles]:
    """Return a worker that is to be forked, and what it will be handed.

    Of what it is handed, the driver keeps the stack file; the rest is for the caller to close.
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


class Untold:
    """Workers whose line is at its end, while the zygote has not told how they ended."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}  # by process

    def note(self, pid: int) -> None:
        """Take in that a worker says nothing any more."""
        self._since.setdefault(pid, time.monotonic())

    def forget(self, pid: int) -> None:
        """Take in that it is known how a worker ended."""
        self._since.pop(pid, None)

    def is_overdue(self) -> bool:
        """Whether one of them has ended, as anybody can see, and should have been told of."""
        if not self._since:
            return False
        late = time.monotonic() - TELL_PATIENCE_S
        return any(
            since <= late and not processes.facts(pid).is_running
            for pid, since in self._since.items()
        )

    def patience_s(self, timeout_s: float | None) -> float | None:
        """Return how long to wait for news before looking here."""
        if not self._since:
            return timeout_s
        return LOOK_S if timeout_s is None else min(LOOK_S, timeout_s)


def heed(worker: LocalWorker, selector: selectors.BaseSelector) -> None:
    """Listen to a worker, and for when it takes more if something waits to be sent."""
    channel = worker.channel
    more = selectors.EVENT_WRITE if channel.has_unsent else 0
    wanted = 0 if channel.is_closed else selectors.EVENT_READ | more
    if wanted == worker.heeded:
        return
    if not wanted:
        selector.unregister(worker.handle)
    elif worker.heeded:
        selector.modify(worker.handle, wanted, worker)
    else:
        selector.register(worker.handle, wanted, worker)
    worker.heeded = wanted


def warn_of_threads(rank: int, threads: Sequence[str]) -> None:
    """Say so if a worker was forked from a process that has other threads."""
    if threads:
        log.warning(
            "rank %d was forked from a process with %d threads (%s) and may hang",
            rank,
            len(threads) + 1,
            ", ".join(threads),
        )


def not_started(failed: int, count: int, reason: str) -> EngineError:
    """Return the error of a group that could not be started."""
    says_why = PRINTED_LAST in reason  # and then the limits are not what is wrong
    return EngineError(
        f"{failed} of {count} workers could not be started: {reason}",
        hint=None if says_why else "check memory and the limit on processes (ulimit -u)",
    )


def outcome(worker: LocalWorker, code: int) -> WorkerExit:
    """Return how a worker ended whose process ended with `code`, minus the signal if by one."""
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
    """Return a worker's log, open for writing at its end; its folder is made."""
    try:
        Path(spec.log).parent.mkdir(parents=True, exist_ok=True)
        return os.open(spec.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        too_many = error.errno in (errno.EMFILE, errno.ENFILE)
        raise EngineError(
            f"the log of rank {spec.rank} cannot be written to {spec.log}: {error.strerror}",
            hint="check the limit on open files (ulimit -n)"
            if too_many
            else "check room and rights there; logs are with the run if its storage is on this"
            " machine, and else in HOLDFAST_LOG_DIR",
        ) from error


def _last_lines(log: str) -> tuple[str, ...]:
    """Return the last lines of a log; if native code crashed, with that thread's stack alone."""
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

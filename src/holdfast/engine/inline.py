"""One worker inside the driver's own process, for debuggers and for looking at things.

The caller's main thread is the worker: it calls `serve`, and breakpoints, prints and exceptions are
there as in any program. The controller's loop runs in another thread meanwhile. What a process of
its own would give is not to be had: nothing can be killed, and a crash takes everything with it.
A function that is to end and does not talk to its driver can only be interrupted where it is.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import select
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from holdfast import settings
from holdfast.channel import Channel
from holdfast.core.placement import Demand
from holdfast.core.run.outcomes import Evicted, WorkerExit
from holdfast.engine.base import Ended, EngineError, EngineEvent, Node, Said, WorkerSpec
from holdfast.engine.local import stacks
from holdfast.engine.local.worker import LocalWorker, outcome
from holdfast.engine.log_files import LogFile
from holdfast.engine.nodes import LocalNodes
from holdfast.engine.wakeup import Wakeup
from holdfast.wire import LastWords, Message

STOP_GRACE_S = 2.0


@dataclass(slots=True)
class _Served:
    """A worker as the thread knows it that runs it: both ends of its line, and how it ended."""

    worker_end: socket.socket
    driver_end: socket.socket
    has_ended: bool = False
    words: LastWords | None = None


class InlineEngine:
    """A single worker of rank 0, run by whoever calls `serve`.

    Args:
        entry: Where the worker begins, `module:function`; it gets the number of its socket.

    Attributes:
        interrupt: Has something raised where the worker is; called from any thread.
        has_insisted: Whether it was called.
    """

    def __init__(self, entry: str) -> None:
        self._entry = entry
        self._nodes = LocalNodes()
        self._changed = threading.Condition()
        self._worker: LocalWorker | None = None
        self._served: _Served | None = None
        self._waiting: _Served | None = None  # for somebody to call `serve`
        self._events: deque[EngineEvent] = deque()
        self.interrupt: Callable[[], None] = lambda: None
        self.has_insisted = False
        self._insisting: threading.Timer | None = None
        self._is_woken = False
        self._is_closed = False
        self._wakeup = Wakeup()

    def nodes(self) -> Sequence[Node]:
        return self._nodes.now()

    def can_grow(self) -> bool:
        return False

    def reserve(self, demand: Demand, workers_min: int, workers_max: int) -> bool:
        return self._nodes.reserve(demand, workers_min, workers_max)

    def warm_up(self) -> None:
        """Do nothing: everything is there."""

    # ------------------------------------------------------------------ the worker's thread

    def serve(self) -> bool:
        """Be the worker of the next group, until its entry point returns.

        What that raises is raised here, after its end has been noted. Returns False if the engine
        was closed before there was a group.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._is_closed)
            served, self._waiting = self._waiting, None
            worker = self._worker
        if served is None or worker is None:
            return False
        module, _, function = self._entry.partition(":")
        try:
            with settings.environment_with(worker.spec.environment):
                # The entry point closes what it is given; the end is to be seen in any case.
                handle = served.worker_end.dup().detach()
                getattr(importlib.import_module(module), function)(handle)
        except BaseException as error:
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            served.words = LastWords(None, said, traceback.format_exc())
            raise
        finally:
            if self._insisting is not None:
                self._insisting.cancel()
            _hang_up(served.worker_end)
            served.worker_end.close()
            served.has_ended = True
            self._wakeup.poke()
        return True

    # ------------------------------------------------------------------ groups

    def start_group(self, group: int, workers: Sequence[WorkerSpec]) -> None:
        if len(workers) != 1:
            raise EngineError(f"{len(workers)} workers were asked for; inside the driver runs one")
        if self._worker is not None:
            raise EngineError("the worker of an earlier group is still inside its function")
        [spec] = workers
        mine, theirs = socket.socketpair()
        channel = Channel(mine, unsent_bytes_max=None)
        if spec.first is not None:
            channel.send(spec.first)
        with self._changed:
            self._worker = LocalWorker(
                group, spec, channel, mine.fileno(), questions=-1, stacks=-1, pid=os.getpid()
            )
            self._served = self._waiting = _Served(theirs, mine)
            self._changed.notify_all()
        self._wakeup.poke()  # for one who listens already, and knows of no worker

    def send(self, group: int, rank: int, message: Message) -> None:
        worker = self._worker
        if worker is not None and (worker.group, worker.spec.rank) == (group, rank):
            worker.channel.send(message)

    def stop_group(self, group: int, *, grace_s: float = 0.0) -> None:
        """Have the worker find its driver gone when it next talks to it, or be interrupted."""
        worker, served = self._worker, self._served
        if worker is None or served is None or worker.group != group:
            return
        worker.is_stopped = True
        _hang_up(served.driver_end)
        with self._changed:
            if self._waiting is served:  # nobody has begun it, and nobody will
                self._waiting = None
                served.worker_end.close()
                served.has_ended = True
                return
        if self._insisting is None:
            self._insisting = threading.Timer(max(grace_s, STOP_GRACE_S), self._insist)
            self._insisting.daemon = True
            self._insisting.start()

    def _insist(self) -> None:
        self.has_insisted = True
        self.interrupt()

    def stacks(self, group: int, timeout_s: float = 5.0) -> Mapping[int, str]:
        worker = self._worker
        if worker is None or worker.group != group:
            return {}
        handle = stacks.new_file()
        try:
            faulthandler.dump_traceback(handle, all_threads=True)
            return {worker.spec.rank: stacks.text_of(handle)}
        finally:
            os.close(handle)

    def log(self, group: int, rank: int) -> LogFile:
        """Return an empty log: what the worker prints is the driver's own output."""
        return LogFile(os.devnull)

    # ------------------------------------------------------------------ events

    def next_event(self, timeout_s: float | None) -> EngineEvent | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._events:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if self._is_woken or self._is_closed:
                self._is_woken = False
                return None
            self._listen(left_s)
            if left_s == 0.0 and not self._events:
                return None
        return self._events.popleft()

    def wake(self) -> None:
        self._is_woken = True
        self._wakeup.poke()

    def _listen(self, timeout_s: float | None) -> None:
        if self._is_closed:
            return
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        worker, served = self._worker, self._served
        if worker is not None and not worker.channel.is_closed:
            unsent = select.POLLOUT if worker.channel.has_unsent else 0
            poll.register(worker.channel, select.POLLIN | unsent)
        poll.poll(None if timeout_s is None else timeout_s * 1000)
        self._wakeup.drain()
        if worker is None or served is None:
            return
        has_ended = served.has_ended  # before looking, so that nothing it said is missed
        worker.channel.flush()
        self._take_messages(worker)
        if has_ended:
            self._note_end(worker, served)

    def _take_messages(self, worker: LocalWorker) -> None:
        for message in worker.channel.receive():
            if isinstance(message, LastWords):
                worker.words = message
            else:
                self._events.append(Said(worker.group, worker.spec.rank, message))

    def _note_end(self, worker: LocalWorker, served: _Served) -> None:
        worker.words = worker.words or served.words
        worker.channel.close()
        ended: WorkerExit = outcome(worker, 0)
        if worker.is_stopped and worker.words is not None and worker.words.error is not None:
            # Having lost its driver is what it raised, and we took that away.
            ended = Evicted(worker.spec.rank, worker.spec.node)
        self._events.append(Ended(worker.group, ended, worker.words))
        self._worker = self._served = None

    def close(self) -> None:
        if self._worker is not None:
            self.stop_group(self._worker.group)
            self._worker.channel.close()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._wakeup.poke()
        self._wakeup.close()


def _hang_up(end: socket.socket) -> None:
    """Let the other end of a line see that it is over, whoever else holds this one."""
    with contextlib.suppress(OSError):  # it is already
        end.shutdown(socket.SHUT_RDWR)

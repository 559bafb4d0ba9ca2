"""An engine that runs one worker inside the driver's own process, for debugging.

The caller's main thread is the worker: it calls `serve`, so breakpoints, prints and exceptions
behave as in any program. The controller's loop runs in another thread. Nothing can be killed, and
a crash takes the driver with it: a function that does not talk to its driver can only be stopped
by an exception raised in its thread.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import select
import socket
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from holdfast import settings
from holdfast.channel import Channel
from holdfast.core.placement import Demand
from holdfast.core.run.outcomes import Evicted, WorkerExit
from holdfast.engine.base import Ended, EngineError, EngineEvent, Node, WorkerSpec
from holdfast.engine.local import stacks
from holdfast.engine.local.worker import LocalWorker, outcome, take_messages
from holdfast.engine.log_files import LogFile
from holdfast.engine.nodes import LocalNodes
from holdfast.engine.wakeup import EventQueue
from holdfast.wire import LastWords, Message

STOP_GRACE_S = 2.0


@dataclass(slots=True)
class _Served:
    """What the thread that runs the worker shares with the driver's: both ends of the line."""

    worker_end: socket.socket
    driver_end: socket.socket
    has_ended: bool = False
    words: LastWords | None = None


class InlineEngine:
    """A single worker of rank 0, run by the thread that calls `serve`.

    Args:
        entry: The worker's entry point, `module:function`; it gets the number of its socket.

    Attributes:
        interrupt: Raises an exception in the worker's thread; called from any thread.
        has_insisted: Whether `interrupt` was called.
    """

    def __init__(self, entry: str) -> None:
        self._entry = entry
        self._nodes = LocalNodes()
        self._changed = threading.Condition()
        self._worker: LocalWorker | None = None
        self._served: _Served | None = None
        self._waiting: _Served | None = None  # until `serve` is called
        self._events = EventQueue(self._listen)
        self.interrupt: Callable[[], None] = lambda: None
        self.has_insisted = False
        self._insisting: threading.Timer | None = None

    def nodes(self) -> Sequence[Node]:
        return self._nodes.now()

    def can_grow(self) -> bool:
        return False

    def reserve(self, demand: Demand, workers_min: int, workers_max: int) -> bool:
        return self._nodes.reserve(demand, workers_min, workers_max)

    def warm_up(self) -> None:
        """Do nothing: everything is imported already."""

    # ------------------------------------------------------------------ the worker's thread

    def serve(self) -> bool:
        """Run the worker of the next group in this thread.

        An exception of its entry point is raised here, after the end of the worker was recorded.
        Returns False if the engine was closed before there was a group.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._events.is_closed)
            served, self._waiting = self._waiting, None
            worker = self._worker
        if served is None or worker is None:
            return False
        module, _, function = self._entry.partition(":")
        try:
            with settings.environment_with(worker.spec.environment):
                # A duplicate, because the entry point may close the handle that it gets.
                handle = served.worker_end.dup().detach()
                getattr(importlib.import_module(module), function)(handle)
        except BaseException as error:
            summary = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            served.words = LastWords(None, summary, traceback.format_exc())
            raise
        finally:
            if self._insisting is not None:
                self._insisting.cancel()
            _hang_up(served.worker_end)
            served.worker_end.close()
            served.has_ended = True
            self._events.wakeup.poke()
        return True

    # ------------------------------------------------------------------ groups

    def start_group(self, group: int, workers: Sequence[WorkerSpec]) -> None:
        if len(workers) != 1:
            raise EngineError(f"{len(workers)} workers were requested; the inline engine runs one")
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
        self._events.wakeup.poke()  # the loop may be listening already, without this worker

    def send(self, group: int, rank: int, message: Message) -> None:
        worker = self._worker
        if worker is not None and (worker.group, worker.spec.rank) == (group, rank):
            worker.channel.send(message)

    def stop_group(self, group: int, *, grace_s: float = 0.0) -> None:
        """Hang up on the worker, and interrupt it if it goes on after the grace period."""
        worker, served = self._worker, self._served
        if worker is None or served is None or worker.group != group:
            return
        worker.is_stopped = True
        _hang_up(served.driver_end)
        with self._changed:
            if self._waiting is served:  # `serve` has not begun it, and will not
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
        """Return an empty log: the worker prints to the driver's own output."""
        return LogFile(os.devnull)

    # ------------------------------------------------------------------ events

    def next_event(self, timeout_s: float | None) -> EngineEvent | None:
        return self._events.next(timeout_s)

    def wake(self) -> None:
        self._events.wake()

    def _listen(self, timeout_s: float | None) -> None:
        poll = select.poll()
        poll.register(self._events.wakeup, select.POLLIN)
        worker, served = self._worker, self._served
        if worker is not None and not worker.channel.is_closed:
            unsent = select.POLLOUT if worker.channel.has_unsent else 0
            poll.register(worker.channel, select.POLLIN | unsent)
        poll.poll(None if timeout_s is None else timeout_s * 1000)
        self._events.wakeup.drain()
        if worker is None or served is None:
            return
        has_ended = served.has_ended  # read first, so that no message is missed
        worker.channel.flush()
        take_messages(worker, self._events.pending)
        if has_ended:
            self._note_end(worker, served)

    def _note_end(self, worker: LocalWorker, served: _Served) -> None:
        worker.words = worker.words or served.words
        worker.channel.close()
        ended: WorkerExit = outcome(worker, 0)
        if worker.is_stopped and worker.words is not None and worker.words.error is not None:
            # It raised because this engine hung up on it.
            ended = Evicted(worker.spec.rank, worker.spec.node)
        self._events.pending.append(Ended(worker.group, ended, worker.words))
        self._worker = self._served = None

    def close(self) -> None:
        if self._worker is not None:
            self.stop_group(self._worker.group)
            self._worker.channel.close()
        with self._changed:
            self._events.close()
            self._changed.notify_all()


def _hang_up(end: socket.socket) -> None:
    """End a connection for its other side, even if another process holds this side, too."""
    with contextlib.suppress(OSError):  # it has ended already
        end.shutdown(socket.SHUT_RDWR)

"""The engine whose workers are processes of this machine, forked by a zygote.

Nothing is polled: a message or a hang-up makes a socket readable, and the zygote learns of a death
by SIGCHLD and passes it on.

A worker's socket is one half of a pair, handed over by the zygote. It has no address, so there is
no folder to keep private, no one to authenticate, nothing to clean up after a crash, and no way for
another user of the machine to connect first.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import selectors
import signal
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.core.placement import Demand
from holdfast.core.run.outcomes import Died
from holdfast.engine import processes
from holdfast.engine.base import (
    Ended,
    EngineError,
    EngineEvent,
    Node,
    NodesChanged,
    WorkerSpec,
)
from holdfast.engine.local import stacks
from holdfast.engine.local.memory_kills import MemoryKills
from holdfast.engine.local.worker import (
    AwaitedEnds,
    LocalWorker,
    listen_to,
    new_worker,
    open_log,
    outcome,
    take_messages,
    warn_of_threads,
)
from holdfast.engine.local.zygote_line import PRINTED_LAST, Start, ZygoteLine
from holdfast.engine.log_files import LogFile
from holdfast.engine.nodes import LocalNodes
from holdfast.engine.wakeup import EventQueue
from holdfast.errors import ConfigError, HoldfastBug, HoldfastError
from holdfast.wire import Assigned, Message

log = logging.getLogger(__name__)

START_TIMEOUT_S = 300.0  # imports may come from a slow network disk
KILL_PATIENCE_S = 5.0
MARK = "HOLDFAST_ENGINE"  # environment variable that marks processes started by our workers


class LocalEngine:
    """Processes of this machine.

    Args:
        entry: The worker's entry point, `module:function`; it gets the number of its socket.
        modules: Modules that every worker needs.
        nodes: What to place workers on; by default this machine, as one node.
        start: How the zygote is made; None for the quickest way that is safe here.
        of_user: Modules of the user's that every worker needs.
        later: Modules that workers need, but the first ones not at once.
    """

    def __init__(
        self,
        entry: str,
        modules: Sequence[str] = (),
        nodes: LocalNodes | None = None,
        *,
        start: Start | None = None,
        of_user: Sequence[str] = (),
        later: Sequence[str] = (),
    ) -> None:
        self._entry, self._start = entry, start
        self._modules, self._of_user, self._later = [*modules], [*of_user], [*later]
        self._nodes = LocalNodes() if nodes is None else nodes
        self._node_changes: deque[str | None] = deque()  # filled by any thread
        self._starting: dict[int, LocalWorker] = {}  # by the number of the request
        self._requests = itertools.count()
        self._refusals: list[str] = []
        self._workers: dict[int, LocalWorker] = {}  # by process
        self._by_place: dict[tuple[int, int], LocalWorker] = {}  # until its end is returned
        self._awaited_ends = AwaitedEnds()
        self._events = EventQueue(self._listen)
        self._zygote: ZygoteLine | None = None
        self._kills = MemoryKills()
        self._mark = secrets.token_hex(8)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._events.wakeup, selectors.EVENT_READ)
        self._nodes.subscribe(self._nodes_changed)

    def nodes(self) -> Sequence[Node]:
        return self._nodes.now()

    def can_grow(self) -> bool:
        return self._nodes.are_simulated

    def reserve(self, demand: Demand, workers_min: int, workers_max: int) -> bool:
        return self._nodes.reserve(demand, workers_min, workers_max)

    def warm_up(self) -> None:
        self._line()

    def _line(self) -> ZygoteLine:
        assert not self._events.is_closed, "the engine is closed"
        if self._zygote is None:
            self._zygote = ZygoteLine(
                self._modules, self._start, of_user=self._of_user, later=self._later
            )
            self._later = []  # if it dies, these may be the cause: the next one does without
            self._selector.register(self._zygote, selectors.EVENT_READ)
        return self._zygote

    # ------------------------------------------------------------------ groups

    def start_group(self, group: int, workers: Sequence[WorkerSpec]) -> None:
        assert not self._are_running(group), "a group is started once"
        self._apply_node_changes()
        names = {node.name for node in self._nodes.now()}
        if missing := sorted({spec.node for spec in workers} - names):
            raise EngineError(
                f"there is no node {missing[0]!r}", hint=f"the nodes are: {', '.join(names)}"
            )
        for spec in workers:
            os.close(open_log(spec))  # first, because it may fail
        line = self._line()
        if not self._workers:
            self._kills.begin()
        try:
            for spec in workers:
                self._request_worker(line, group, spec)
        except (OSError, HoldfastError) as error:
            self._abandon(group)
            if isinstance(error, HoldfastError):
                raise
            raise EngineError(
                f"the workers could not be started: {error.strerror}",
                hint="check the limit on open files (ulimit -n)",
            ) from error
        self._wait_for_start(group, len(workers))

    def _request_worker(self, line: ZygoteLine, group: int, spec: WorkerSpec) -> None:
        worker, handles = new_worker(group, spec)
        try:
            if spec.first is not None:
                worker.channel.send(spec.first)
            self._starting[request := next(self._requests)] = worker
            environment = {**spec.environment, MARK: self._mark}
            line.fork(request, spec.node, self._entry, environment, handles)
        except ConfigError:  # the message is too large, so nothing was forked
            self._close_files(worker)
            raise
        finally:
            for handle in (handles.channel, handles.log, handles.questions):
                os.close(handle)

    def _wait_for_start(self, group: int, count: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._starting and (left_s := deadline - time.monotonic()) > 0:
            self._listen(left_s)
        if not self._starting and not self._refusals:
            return
        failed = len(self._refusals) + len(self._starting)
        refusals = [*self._refusals, f"the zygote did not answer within {START_TIMEOUT_S:g} s"]
        self._abandon(group)
        reason = refusals[0]
        raise EngineError(
            f"{failed} of {count} workers could not be started: {reason}",
            hint=None  # what the zygote printed says what is wrong, and it is no limit
            if PRINTED_LAST in reason
            else "check memory and the limit on processes (ulimit -u)",
        )

    def _abandon(self, group: int) -> None:
        """Undo a start: afterwards nothing of the group runs, and no event of it is pending."""
        deadline = time.monotonic() + KILL_PATIENCE_S
        while self._starting and (left_s := deadline - time.monotonic()) > 0:
            self._listen(left_s)  # requested workers may still be forked
        if self._starting and self._zygote is not None:
            self._zygote.kill()
            self._zygote_died()
        self._refusals.clear()
        self.stop_group(group)
        self._events.pending = deque(
            event for event in self._events.pending if getattr(event, "group", None) != group
        )
        self._by_place = {
            place: worker for place, worker in self._by_place.items() if worker.group != group
        }

    def send(self, group: int, rank: int, message: Message) -> None:
        worker = self._by_place.get((group, rank))
        if worker is not None and not worker.channel.is_closed:
            if isinstance(message, Assigned) and message.log is not None:
                worker.log = message.log
            worker.channel.send(message)
            self._listen_to(worker)

    def stop_group(self, group: int, *, grace_s: float = 0.0) -> None:
        stopped = [worker for worker in self._workers.values() if worker.group == group]
        for worker in stopped:
            worker.is_stopped = True
        if grace_s > 0:
            for worker in stopped:
                if self._zygote is not None:
                    self._zygote.signal(worker.pid, signal.SIGTERM)
            deadline = time.monotonic() + grace_s
            while self._are_running(group) and (left_s := deadline - time.monotonic()) > 0:
                self._listen(left_s)
        self._kill(stopped)
        patience = time.monotonic() + KILL_PATIENCE_S
        while self._are_running(group):
            self._listen(max(0.0, patience - time.monotonic()))
            if time.monotonic() > patience:
                self._end_stuck_zygote(group)
                patience += KILL_PATIENCE_S

    def _end_stuck_zygote(self, group: int) -> None:
        """End a zygote that does not carry out requests; the kernel ends its workers with it."""
        left = [worker for worker in self._workers.values() if worker.group == group]
        states = {worker.spec.rank: processes.facts(worker.pid).state for worker in left}
        if all(state == "D" for state in states.values()):
            log.warning("ranks %s wait in the kernel and cannot be ended yet", sorted(states))
        elif self._zygote is not None:
            self._zygote.kill()

    def _kill(self, workers: Sequence[LocalWorker]) -> None:
        for worker in workers:
            if self._zygote is not None and worker.pid in self._workers:
                self._zygote.kill_worker(worker.pid)

    def _are_running(self, group: int) -> bool:
        return any(worker.group == group for worker in self._workers.values())

    def stacks(self, group: int, timeout_s: float = 5.0) -> Mapping[int, str]:
        if self._zygote is None:
            return {}
        requests = {
            worker.spec.rank: stacks.Request(worker.pid, worker.questions, worker.stacks)
            for worker in self._workers.values()
            if worker.group == group
        }
        return stacks.collect(requests, self._zygote.signal, timeout_s)

    def log(self, group: int, rank: int) -> LogFile:
        worker = self._by_place.get((group, rank))
        return LogFile(os.devnull if worker is None else worker.log)

    # ------------------------------------------------------------------ nodes

    def _nodes_changed(self, failed: str | None) -> None:
        """Record a change, in the thread that made it."""
        self._node_changes.append(failed)
        line = self._zygote
        if failed is not None and line is not None:
            line.lose_node(failed)  # now: the driver may not call `next_event` for a while
        self._events.wakeup.poke()

    def _apply_node_changes(self) -> None:
        while self._node_changes:
            failed = self._node_changes.popleft()
            workers = [*self._workers.values(), *self._starting.values()]
            lost = [worker for worker in workers if worker.spec.node == failed]
            for worker in lost:
                worker.node_lost = True
            self._kill(lost)  # also those just forked; others are killed once they are
            if NodesChanged() not in self._events.pending:
                self._events.pending.append(NodesChanged())

    # ------------------------------------------------------------------ events

    def next_event(self, timeout_s: float | None) -> EngineEvent | None:
        event = self._events.next(timeout_s)
        if isinstance(event, Ended):
            self._by_place.pop((event.group, event.exit.rank))
        return event

    def wake(self) -> None:
        self._events.wake()

    def _listen(self, timeout_s: float | None) -> None:
        """Process what workers and zygote have sent, waiting for the first of it."""
        if self._events.is_closed:
            return
        for key, events in self._selector.select(self._awaited_ends.patience_s(timeout_s)):
            if key.fileobj is self._events.wakeup:
                self._events.wakeup.drain()
            elif key.fileobj is self._zygote:
                self._hear_zygote()
            else:
                self._hear_worker(key.data, events)
        if self._zygote is not None and self._awaited_ends.are_overdue():
            log.warning("the zygote did not report the end of a worker, and is ended as well")
            self._zygote.kill()
        if self._zygote is not None and self._zygote.is_gone:
            self._zygote_died()
        self._apply_node_changes()

    def _hear_worker(self, worker: LocalWorker, events: int) -> None:
        if worker.channel.is_closed:
            return  # its end was processed just before
        if events & selectors.EVENT_WRITE:
            worker.channel.flush()
        if events & selectors.EVENT_READ:
            take_messages(worker, self._events.pending)
        self._listen_to(worker)

    def _listen_to(self, worker: LocalWorker) -> None:
        listen_to(worker, self._selector)
        if worker.channel.is_closed:
            self._awaited_ends.add(worker.pid)

    def _hear_zygote(self) -> None:
        assert self._zygote is not None
        for event in self._zygote.hear():
            match event["event"]:
                case "forked":
                    self._note_start(self._starting.pop(event["id"]), event)
                case "not forked":
                    self._refusals.append(event["error"])
                    self._close_files(self._starting.pop(event["id"]))
                case "ended":
                    self._note_end(event["pid"], event["code"], event["cgroup"])
                case kind:
                    raise HoldfastBug(f"the zygote sent an event of the unknown kind {kind!r}")

    def _note_start(self, worker: LocalWorker, event: Mapping[str, Any]) -> None:
        worker.pid = event["pid"]
        self._workers[worker.pid] = worker
        self._by_place[worker.group, worker.spec.rank] = worker
        if worker.node_lost:
            self._kill([worker])
        listen_to(worker, self._selector)
        warn_of_threads(worker.spec.rank, event["threads"])

    def _note_end(self, pid: int, code: int, cgroup: str = "") -> None:
        self._apply_node_changes()  # its node may be among them
        worker = self._workers.pop(pid)
        self._awaited_ends.remove(pid)
        while take_messages(worker, self._events.pending):
            pass  # messages it sent before it died are still in the socket
        self._close_files(worker)
        ended = outcome(worker, code)
        if isinstance(ended, Died) and ended.signal == signal.SIGKILL:
            ended = replace(ended, out_of_memory=self._kills.claim(cgroup))
        self._events.pending.append(Ended(worker.group, ended, worker.words))

    def _close_files(self, worker: LocalWorker) -> None:
        worker.channel.is_closed = True
        listen_to(worker, self._selector)
        worker.channel.close()
        os.close(worker.questions)
        os.close(worker.stacks)

    def _zygote_died(self) -> None:
        """Report the end of all workers, which died with it; the next group gets a new one."""
        assert self._zygote is not None
        self._selector.unregister(self._zygote)
        self._zygote.kill()  # it may only have stopped answering
        self._zygote.close()
        why = f"the zygote, which workers are forked from, has died: {self._zygote.epitaph()}"
        self._zygote = None
        for worker in self._starting.values():
            self._refusals.append(why)
            self._close_files(worker)
        self._starting.clear()
        # Workers that the kernel has not ended yet, and what workers started.
        processes.end_all(self._workers, f"{MARK}={self._mark}")
        for pid in list(self._workers):
            self._note_end(pid, -signal.SIGKILL)

    def close(self) -> None:
        if self._events.is_closed:
            return
        for group in {worker.group for worker in self._workers.values()}:
            self.stop_group(group)
        self._nodes.unsubscribe(self._nodes_changed)
        if self._zygote is not None:
            self._selector.unregister(self._zygote)
            self._zygote.close()
            self._zygote = None
        for worker in self._starting.values():
            self._close_files(worker)
        self._nodes.release()
        self._selector.close()
        self._events.close()

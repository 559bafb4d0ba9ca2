"""Workers as processes of this machine, forked by a zygote.

All that happens is told by the kernel: a message or the end of a socket makes it readable, and the
zygote hears of a death by SIGCHLD and passes it on. Nothing is polled.

A worker's socket is one half of a pair, handed through the zygote. There is no address that it
could be reached at, so there is no folder to keep private, nobody to authenticate, nothing to
clean up after a crash, and no other user of the machine who could be first.
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
    Said,
    WorkerSpec,
)
from holdfast.engine.local import stacks
from holdfast.engine.local.memory_kills import MemoryKills
from holdfast.engine.local.worker import (
    LocalWorker,
    Untold,
    heed,
    new_worker,
    not_started,
    open_log,
    outcome,
    warn_of_threads,
)
from holdfast.engine.local.zygote_line import Start, ZygoteLine
from holdfast.engine.log_files import LogFile
from holdfast.engine.nodes import LocalNodes
from holdfast.engine.wakeup import Wakeup
from holdfast.errors import ConfigError, HoldfastBug, HoldfastError
from holdfast.wire import Assigned, LastWords, Message

log = logging.getLogger(__name__)

START_TIMEOUT_S = 300.0  # its imports may come from a slow network disk
KILL_PATIENCE_S = 5.0
MARK = "HOLDFAST_ENGINE"  # a variable by which what a worker started is known to be ours


class LocalEngine:
    """Processes of this machine.

    Args:
        entry: Where a worker begins, `module:function`; it gets the number of its socket.
        modules: What workers will want imported.
        nodes: What to place workers on; by default this machine, as one node.
        start: How the zygote is made; None for the quickest way that is safe here.
        of_user: Modules of the user's that workers will want imported.
        later: What workers will want imported, but the first ones not at once.
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
        self._untold = Untold()
        self._events: deque[EngineEvent] = deque()
        self._zygote: ZygoteLine | None = None
        self._kills = MemoryKills()
        self._mark = secrets.token_hex(8)
        self._is_woken = self._is_closed = False
        self._wakeup = Wakeup()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakeup, selectors.EVENT_READ)
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
        assert not self._is_closed, "the engine is closed"
        if self._zygote is None:
            self._zygote = ZygoteLine(
                self._modules, self._start, of_user=self._of_user, later=self._later
            )
            self._later = []  # if it dies, that may have been the cause: the next one does without
            self._selector.register(self._zygote, selectors.EVENT_READ)
        return self._zygote

    # ------------------------------------------------------------------ groups

    def start_group(self, group: int, workers: Sequence[WorkerSpec]) -> None:
        assert not self._are_running(group), "an group is started once"
        self._take_node_changes()
        there = {node.name for node in self._nodes.now()}
        if missing := sorted({spec.node for spec in workers} - there):
            raise EngineError(
                f"there is no node {missing[0]!r}", hint=f"the nodes are: {', '.join(there)}"
            )
        for spec in workers:
            os.close(open_log(spec))  # before anything runs, for it may not be possible
        line = self._line()
        if not self._workers:
            self._kills.begin()
        try:
            for spec in workers:
                self._ask_for(line, group, spec)
        except (OSError, HoldfastError) as error:
            self._abandon(group)
            if isinstance(error, HoldfastError):
                raise
            raise EngineError(
                f"the workers could not be started: {error.strerror}",
                hint="check the limit on open files (ulimit -n)",
            ) from error
        self._wait_for_start(group, len(workers))

    def _ask_for(self, line: ZygoteLine, group: int, spec: WorkerSpec) -> None:
        worker, handles = new_worker(group, spec)
        try:
            if spec.first is not None:
                worker.channel.send(spec.first)
            self._starting[request := next(self._requests)] = worker
            environment = {**spec.environment, MARK: self._mark}
            line.fork(request, spec.node, self._entry, environment, handles)
        except ConfigError:  # the message is too large: there is nobody to be forked
            self._let_go(worker)
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
        raise not_started(failed, count, refusals[0])

    def _abandon(self, group: int) -> None:
        """Undo a start: nothing runs and nothing is heard of it."""
        deadline = time.monotonic() + KILL_PATIENCE_S
        while self._starting and (left_s := deadline - time.monotonic()) > 0:
            self._listen(left_s)  # those that were asked for may be forked yet
        if self._starting and self._zygote is not None:
            self._zygote.kill()
            self._zygote_died()
        self._refusals.clear()
        self.stop_group(group)
        self._events = deque(
            event for event in self._events if getattr(event, "group", None) != group
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
            self._heed(worker)

    def stop_group(self, group: int, *, grace_s: float = 0.0) -> None:
        mine = [worker for worker in self._workers.values() if worker.group == group]
        for worker in mine:
            worker.is_stopped = True
        if grace_s > 0:
            for worker in mine:
                if self._zygote is not None:
                    self._zygote.signal(worker.pid, signal.SIGTERM)
            deadline = time.monotonic() + grace_s
            while self._are_running(group) and (left_s := deadline - time.monotonic()) > 0:
                self._listen(left_s)
        self._kill(mine)
        patience = time.monotonic() + KILL_PATIENCE_S
        while self._are_running(group):
            self._listen(max(0.0, patience - time.monotonic()))
            if time.monotonic() > patience:
                self._doubt_zygote(group)
                patience += KILL_PATIENCE_S

    def _doubt_zygote(self, group: int) -> None:
        """End a zygote that does not do as it is told; the kernel ends its workers with it."""
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
        line = self._zygote
        asked = {
            worker.spec.rank: stacks.Asked(worker.pid, worker.questions, worker.stacks)
            for worker in self._workers.values()
            if worker.group == group
        }
        return stacks.collect(asked, line.signal, timeout_s)

    def log(self, group: int, rank: int) -> LogFile:
        worker = self._by_place.get((group, rank))
        return LogFile(os.devnull if worker is None else worker.log)

    # ------------------------------------------------------------------ nodes

    def _nodes_changed(self, failed: str | None) -> None:
        """Take note of a change; called by whatever thread made it."""
        self._node_changes.append(failed)
        line = self._zygote
        if failed is not None and line is not None:
            line.lose_node(failed)  # now, even if nobody listens to us for a while
        self._wakeup.poke()

    def _take_node_changes(self) -> None:
        while self._node_changes:
            failed = self._node_changes.popleft()
            known = [*self._workers.values(), *self._starting.values()]
            on_it = [one for one in known if one.spec.node == failed]
            for worker in on_it:
                worker.node_lost = True
            self._kill(on_it)  # those forked a moment ago, too, and others once they are
            if NodesChanged() not in self._events:
                self._events.append(NodesChanged())

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
        event = self._events.popleft()
        if isinstance(event, Ended):
            self._by_place.pop((event.group, event.exit.rank))
        return event

    def wake(self) -> None:
        self._is_woken = True
        self._wakeup.poke()

    def _listen(self, timeout_s: float | None) -> None:
        """Take in whatever has come from workers and zygote, waiting for the first."""
        if self._is_closed:
            return
        for key, events in self._selector.select(self._untold.patience_s(timeout_s)):
            if key.fileobj is self._wakeup:
                self._wakeup.drain()
            elif key.fileobj is self._zygote:
                self._hear_zygote()
            else:
                self._hear_worker(key.data, events)
        if self._zygote is not None and self._untold.is_overdue():
            log.warning("the zygote does not tell of a worker that has ended, and is ended as well")
            self._zygote.kill()
        if self._zygote is not None and self._zygote.is_gone:
            self._zygote_died()
        self._take_node_changes()

    def _hear_worker(self, worker: LocalWorker, events: int) -> None:
        if worker.channel.is_closed:
            return  # its end has come in just before
        if events & selectors.EVENT_WRITE:
            worker.channel.flush()
        if events & selectors.EVENT_READ:
            self._take_messages(worker)
        self._heed(worker)

    def _heed(self, worker: LocalWorker) -> None:
        heed(worker, self._selector)
        if worker.channel.is_closed:
            self._untold.note(worker.pid)

    def _take_messages(self, worker: LocalWorker) -> bool:
        """Take in what a worker has said; return whether there may be more."""
        messages = worker.channel.receive()
        for message in messages:
            if isinstance(message, LastWords):
                worker.words = message
            else:
                self._events.append(Said(worker.group, worker.spec.rank, message))
        return bool(messages)

    def _hear_zygote(self) -> None:
        assert self._zygote is not None
        for told in self._zygote.hear():
            match told["event"]:
                case "forked":
                    self._note_start(self._starting.pop(told["id"]), told)
                case "not forked":
                    self._refusals.append(told["error"])
                    self._let_go(self._starting.pop(told["id"]))
                case "ended":
                    self._note_end(told["pid"], told["code"], told["cgroup"])
                case other:
                    raise HoldfastBug(f"the zygote told of {other!r}")

    def _note_start(self, worker: LocalWorker, told: Mapping[str, Any]) -> None:
        worker.pid = told["pid"]
        self._workers[worker.pid] = worker
        self._by_place[worker.group, worker.spec.rank] = worker
        if worker.node_lost:
            self._kill([worker])
        heed(worker, self._selector)
        warn_of_threads(worker.spec.rank, told["threads"])

    def _note_end(self, pid: int, code: int, cgroup: str = "") -> None:
        self._take_node_changes()  # its node may be among them
        worker = self._workers.pop(pid)
        self._untold.forget(pid)
        while self._take_messages(worker):
            pass  # what it said before it died is still in the socket
        self._let_go(worker)
        ended = outcome(worker, code)
        if isinstance(ended, Died) and ended.signal == signal.SIGKILL:
            ended = replace(ended, out_of_memory=self._kills.claim(cgroup))
        self._events.append(Ended(worker.group, ended, worker.words))

    def _let_go(self, worker: LocalWorker) -> None:
        worker.channel.is_closed = True
        heed(worker, self._selector)
        worker.channel.close()
        os.close(worker.questions)
        os.close(worker.stacks)

    def _zygote_died(self) -> None:
        """All workers went down with it; a new one is made for the next group."""
        assert self._zygote is not None
        self._selector.unregister(self._zygote)
        self._zygote.kill()  # it may only have stopped to answer
        self._zygote.close()
        why = f"the zygote, which workers are forked from, has died: {self._zygote.epitaph()}"
        self._zygote = None
        for worker in self._starting.values():
            self._refusals.append(why)
            self._let_go(worker)
        self._starting.clear()
        # The workers, if the kernel has not ended them yet, and what they started.
        processes.end_all(self._workers, f"{MARK}={self._mark}")
        for pid in list(self._workers):
            self._note_end(pid, -signal.SIGKILL)

    def close(self) -> None:
        if self._is_closed:
            return
        for group in {worker.group for worker in self._workers.values()}:
            self.stop_group(group)
        self._nodes.unsubscribe(self._nodes_changed)
        if self._zygote is not None:
            self._selector.unregister(self._zygote)
            self._zygote.close()
            self._zygote = None
        for worker in self._starting.values():
            self._let_go(worker)
        self._is_closed = True
        self._nodes.release()
        self._selector.close()
        self._wakeup.close()

"""An engine whose workers, machines and messages are simulated."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from holdfast.core.placement import Demand, Node
from holdfast.core.run.outcomes import WorkerExit
from holdfast.engine.base import Ended, EngineError, EngineEvent, NodesChanged, Said, WorkerSpec
from holdfast.engine.log_files import LogFile
from holdfast.wire import Committed, Listed, Message, Reported
from tests.simulation.invariants import Violation
from tests.simulation.stage import Actor
from tests.simulation.truth import Group, Launch
from tests.simulation.workers import SimWorker, Work, do_job

if TYPE_CHECKING:
    from tests.simulation.world import World

TURN_S = 0.001  # what a look at the engine costs that waits for nothing
SAID_AGAIN = 12  # how many of a group's messages may come once more
SPINS_MAX = 2000  # looks in a row that waited for nothing and found nothing


class SimEngine:
    """Keeps the contract of `holdfast.engine.base.Engine`, and no more than that.

    Now and then a message of a group that is over comes once more, as a network may have it.

    Args:
        trains: Whether its groups are attempts of the run, whose rules are checked; otherwise they
            run beside it, in the driver's machine.
        work: What its workers do.
    """

    def __init__(
        self, world: World, launch: Launch, *, trains: bool = True, work: Work = do_job
    ) -> None:
        self._world, self._stage, self._launch = world, world.stage, launch
        self.driver = launch.process
        self._trains, self._work = trains, work
        self._workers: dict[tuple[int, int], SimWorker] = {}
        self._events: deque[EngineEvent] = deque()
        self._last_said: deque[Said] = deque(maxlen=SAID_AGAIN)
        self._listener: Actor | None = None
        self._is_woken = self._is_closed = False
        self._spins = 0
        world.cluster.engines.append(self)

    def nodes(self) -> Sequence[Node]:
        if not self._trains:
            return (Node("here", {"CPU": 1.0}),)  # that of the driver
        return tuple(self._world.cluster.nodes.values())

    def can_grow(self) -> bool:
        return True

    def reserve(self, demand: Demand, workers_min: int, workers_max: int) -> bool:
        return True  # nobody else is in this world

    def warm_up(self) -> None:
        pass  # nothing is imported

    def live_workers(self, group: int | None = None) -> list[SimWorker]:
        """Return the workers that have not ended, of one group or of all."""
        live = [worker for worker in self._workers.values() if not worker.is_over]
        return [worker for worker in live if group is None or worker.attempt == group]

    # ------------------------------------------------------------------ groups

    def start_group(self, group: int, workers: Sequence[WorkerSpec]) -> None:
        self._stage.check()
        self._stage.sleep(self._world.dice.uniform(0, 0.3), "a group to start")
        there = [node.name for node in self.nodes()]
        if missing := [spec.node for spec in workers if spec.node not in there]:
            self._refuse(f"there is no node {missing[0]!r}")
        if self._trains and self._world.next_start() is not None:
            self._refuse("the story says so")
        facts = self._note_start(group, workers) if self._trains else None
        self._workers = {(one.attempt, one.rank): one for one in self.live_workers()}
        for spec in workers:
            worker = SimWorker(
                *(self._world, spec, group, facts),
                say=self._hear,
                ended=self._note_end,
                work=self._work,
            )
            self._workers[group, spec.rank] = worker
            self._stage.after(self._world.dice.uniform(0, 0.5), worker.begin)
        if self._world.story.setting.repeats:
            self._say_again()
        self._last_said.clear()

    def _note_start(self, group: int, workers: Sequence[WorkerSpec]) -> Group:
        nodes = {spec.rank: spec.node for spec in workers}
        alive = [one for engine in self._world.cluster.engines for one in engine.live_workers()]
        return self._world.truth.group_started(self._launch, group, nodes, alive)

    def _say_again(self) -> None:
        """Let the last messages of the group before come once more, in order."""
        times = sorted(self._world.dice.uniform(0, 5) for _ in self._last_said)
        for after_s, said in zip(times, list(self._last_said), strict=True):
            self._stage.after(after_s, partial(self._push, said))

    def _refuse(self, why: str) -> None:
        self._launch.refusals += 1
        self._world.tell(f"a group does not start: {why}")
        raise EngineError(why)

    def send(self, group: int, rank: int, message: Message) -> None:
        self._stage.check()
        worker = self._workers.get((group, rank))
        if worker is None:
            return
        if isinstance(message, Committed) and worker.group is not None:
            self._world.truth.acknowledge(worker.group, message.index, message.directory)
        elif isinstance(message, Listed) and worker.group is not None:
            self._world.truth.listed(worker.group, [one for one, *_ in message.checkpoints])
        if not worker.is_over:
            worker.channel.take(message)

    def stop_group(self, group: int, *, grace_s: float = 0.0) -> None:
        self._stage.check()
        live = self.live_workers(group)
        if not live:
            return
        if live[0].group is not None:
            self._world.truth.group_stopped(live[0].group)
        self._stage.sleep(self._world.dice.uniform(0, 0.02), "a group to be gone")
        self._end_all(group)

    def _end_all(self, group: int | None = None) -> None:
        for worker in self.live_workers(group):
            worker.is_stopped = True
            worker.die(9)

    def stacks(self, group: int, timeout_s: float = 5.0) -> Mapping[int, str]:
        live = self.live_workers(group)
        return {worker.rank: self._stage.stacks_of(worker.process) for worker in live}

    def log(self, group: int, rank: int) -> LogFile:
        return LogFile(os.devnull)  # nobody prints

    # ------------------------------------------------------------------ what happens to it

    def lose_node(self, name: str) -> None:
        """End every worker on a node that is no more."""
        for worker in self.live_workers():
            if worker.node == name:
                worker.node_lost = True
                worker.die(9)

    def nodes_changed(self) -> None:
        """Take in that there are other nodes now."""
        if NodesChanged() not in self._events:
            self._push(NodesChanged())

    def orphan(self, seconds: float) -> None:
        """Take in that the driver is gone; its workers notice after a while."""
        self._is_closed = True
        self._events.clear()
        self._stage.after(seconds, self._end_all)

    # ------------------------------------------------------------------ events

    def _hear(self, worker: SimWorker, message: Message) -> None:
        said = Said(worker.attempt, worker.rank, message)
        self._push(said)
        if self._trains:
            self._last_said.append(said)

    def _note_end(self, worker: SimWorker, ended: WorkerExit) -> None:
        if worker.group is not None:
            self._world.truth.worker_ended(worker.group, ended)
        event = Ended(worker.attempt, ended, worker.words)
        worker.channel.after_all_said(partial(self._push, event))

    def _push(self, event: EngineEvent) -> None:
        if self._is_closed:
            return
        self._events.append(event)
        self._poke()

    def _poke(self) -> None:
        if self._listener is not None:
            self._stage.wake(self._listener)

    def next_event(self, timeout_s: float | None) -> EngineEvent | None:
        self._stage.check()
        ends = None if timeout_s is None else self._stage.now + timeout_s
        if not self._events and timeout_s is not None and timeout_s <= 0:
            self._spin()
        while not self._events:
            left_s = None if ends is None else ends - self._stage.now
            if self._is_woken or self._is_closed or (left_s is not None and left_s <= 0):
                self._is_woken = False
                return None
            self._listener = self._stage.current
            self._stage.wait("an event of its engine", left_s)
            self._listener = None
        self._spins = 0
        event = self._events.popleft()
        if isinstance(event, Said) and isinstance(event.message, Reported):
            heard = self._world.truth.heard.setdefault(event.message.index, [])
            heard.append((self._stage.now, self._launch))
        return event

    def _spin(self) -> None:
        self._spins += 1
        if self._spins > SPINS_MAX:
            what = f"{self._spins} looks in a row that waited for nothing and found nothing"
            violation = Violation("a driver that waits sleeps", what)
            self._stage.fail(violation)
            raise violation
        self._stage.sleep(TURN_S, "its turn")

    def wake(self) -> None:
        self._is_woken = True
        self._poke()

    def close(self) -> None:
        self._stage.check()
        self._is_closed = True
        self._end_all()

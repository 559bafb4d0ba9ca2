"""An engine whose workers, machines and messages are simulated."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from holdfast.core.outcomes import WorkerExit
from holdfast.core.placement import Node
from holdfast.engine.base import Ended, EngineError, EngineEvent, NodesChanged, Said, WorkerSpec
from holdfast.wire import Committed, Listed, Message, Reported
from tests.simulation.invariants import Violation
from tests.simulation.stage import Actor
from tests.simulation.truth import Group, Launch
from tests.simulation.workers import SimWorker

if TYPE_CHECKING:
    from tests.simulation.world import World

TURN_S = 0.001  # what a look at the engine costs that waits for nothing
SAID_AGAIN = 12  # how many of a group's messages may come once more
SPINS_MAX = 2000  # looks in a row that waited for nothing and found nothing


class SimEngine:
    """Keeps the contract of `holdfast.engine.base.Engine`, and no more than that.

    Now and then a message of a group that is over comes once more, as a network may have it.
    """

    def __init__(self, world: World, launch: Launch, *, trains: bool = True) -> None:
        self._world, self._stage, self._launch = world, world.stage, launch
        self.driver = launch.process
        self._trains = trains
        self._workers: dict[int, SimWorker] = {}
        self._attempt = 0
        self._group: Group | None = None
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

    def live_workers(self) -> list[SimWorker]:
        """Return the workers that have not ended."""
        return [worker for worker in self._workers.values() if not worker.is_over]

    # ------------------------------------------------------------------ groups

    def start_group(self, attempt: int, workers: Sequence[WorkerSpec]) -> None:
        self._stage.check()
        self._stage.sleep(self._world.dice.uniform(0, 0.3), "a group to start")
        there = [node.name for node in self.nodes()]
        if missing := [spec.node for spec in workers if spec.node not in there]:
            self._refuse(f"there is no node {missing[0]!r}")
        if self._trains and self._world.next_start() is not None:
            self._refuse("the story says so")
        self._attempt = attempt
        if self._trains:
            nodes = {spec.rank: spec.node for spec in workers}
            alive = [one for engine in self._world.cluster.engines for one in engine.live_workers()]
            self._group = self._world.truth.group_started(self._launch, attempt, nodes, alive)
        self._workers = {
            spec.rank: SimWorker(
                self._world, spec, attempt, self._group, say=self._hear, ended=self._note_end
            )
            for spec in workers
        }
        for worker in self._workers.values():
            self._stage.after(self._world.dice.uniform(0, 0.5), worker.begin)
        if self._world.story.setting.repeats:
            self._say_again()
        self._last_said.clear()

    def _say_again(self) -> None:
        """Let the last messages of the group before come once more, in order."""
        times = sorted(self._world.dice.uniform(0, 5) for _ in self._last_said)
        for after_s, said in zip(times, list(self._last_said), strict=True):
            self._stage.after(after_s, partial(self._push, said))

    def _refuse(self, why: str) -> None:
        self._launch.refusals += 1
        self._world.tell(f"a group does not start: {why}")
        raise EngineError(why)

    def send(self, attempt: int, rank: int, message: Message) -> None:
        self._stage.check()
        worker = self._workers.get(rank)
        if worker is None or worker.attempt != attempt:
            return
        if isinstance(message, Committed) and self._group is not None:
            self._world.truth.acknowledge(self._group, message.index, message.directory)
        elif isinstance(message, Listed) and self._group is not None:
            self._world.truth.listed(self._group, [one for one, *_ in message.checkpoints])
        if not worker.is_over:
            worker.channel.take(message)

    def stop_group(self, attempt: int, *, grace_s: float = 0.0) -> None:
        self._stage.check()
        if attempt != self._attempt or not self.live_workers():
            return
        if self._group is not None:
            self._world.truth.group_stopped(self._group)
        self._stage.sleep(self._world.dice.uniform(0, 0.02), "a group to be gone")
        self._end_all()

    def _end_all(self) -> None:
        for worker in self.live_workers():
            worker.is_stopped = True
            worker.die(9)

    def stacks(self, attempt: int, timeout_s: float = 5.0) -> Mapping[int, str]:
        return {worker.rank: "somewhere" for worker in self.live_workers()}

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

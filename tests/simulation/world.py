"""Everything a simulated run takes place in, and the faults that come to it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from holdfast.checkpoint import Checkpoint
from holdfast.control.host.preemption import Notice
from holdfast.core.placement import Node
from holdfast.core.run.machine import Ending
from holdfast.journal.owner import this_process
from tests.simulation.clock import SimClock
from tests.simulation.stage import Process, Stage
from tests.simulation.story import Fault, Story
from tests.simulation.truth import Launch, Truth

if TYPE_CHECKING:
    from tests.simulation.engine import SimEngine
    from tests.simulation.workers import SimWorker


_WHO = str(this_process())


class Cluster:
    """The machines there are; engines hear of changes."""

    def __init__(self, story: Story) -> None:
        self._room = {"CPU": float(story.setting.room)}
        self._count = 0
        self.nodes: dict[str, Node] = {}
        self.engines: list[SimEngine] = []
        for _ in range(story.setting.nodes):
            self.add()

    def add(self) -> str:
        """Add a node with a name that was never used, and return that."""
        name = f"node-{self._count}"
        self._count += 1
        self.nodes[name] = Node(name, self._room)
        self._tell()
        return name

    def lose(self, name: str) -> None:
        """Lose a node, and everything on it."""
        if self.nodes.pop(name, None) is not None:
            for engine in self.engines:
                engine.lose_node(name)
            self._tell()

    def drain(self, name: str, leaves: float) -> None:
        """Say of a node that it leaves."""
        node = self.nodes[name]
        self.nodes[name] = Node(name, node.room, leaves=leaves)
        self._tell()

    def _tell(self) -> None:
        for engine in self.engines:
            engine.nodes_changed()


class World:
    """One simulated run.

    Attributes:
        dice: For everything that is drawn while the run takes place.
        truth: What really happened, for those who check.
        lines: The story as it was played: when, and what.
        home: The run's folder, as paths of checkpoints begin.
        is_quiet: Whether nothing goes wrong any more.
        start_rival: Starts one more driver, whatever others do.
    """

    def __init__(self, story: Story, scratch: str) -> None:
        self.story, self.scratch = story, scratch
        self.dice = random.Random(f"holdfast play {story.seed}")
        self.stage = Stage(story.ends_s)
        self.clock = SimClock(self.stage)
        self.lines: list[tuple[float, str]] = []
        self.truth = Truth(story, self.stage, self.tell)
        self.cluster = Cluster(story)
        self.store_is_down_until = 0.0
        self.is_quiet = False
        self.home = ""
        self.start_rival: Callable[[], None] = lambda: None
        self._operations = self._starts = 0
        self._left: dict[tuple[str, float], list[Fault]] = {}
        for fault in story.faults:
            self._left.setdefault((fault.when, fault.at), []).append(fault)
            if fault.when == "time":
                self.stage.at(fault.at, partial(self._strike, fault))

    def tell(self, line: str) -> None:
        """Add a line to the story as it is played, without what is not the same every time."""
        line = line.replace(self.scratch, "(scratch)").replace(_WHO, "(who plays)")
        self.lines.append((self.stage.now, line))

    def directory_of(self, checkpoint: Checkpoint) -> str:
        """Return the folder of a checkpoint, relative to the run's."""
        return checkpoint.path.removeprefix(f"{self.home}/")

    def delay_s(self) -> float:
        """Draw how long a message takes; now and then much longer than most."""
        most = self.story.setting.message_s
        return self.dice.random() * most * (1.0 if self.dice.random() < 0.05 else 0.1)

    # ------------------------------------------------------------------ faults that wait

    def _take(self, when: str, at: float) -> Fault | None:
        left = self._left.get((when, at))
        return left.pop(0) if left else None

    def next_operation(self) -> Fault | None:
        """Count an operation of the store; return what goes wrong with it, if anything does."""
        self._operations += 1
        found = self._take("operation", self._operations)
        if found is not None:
            self.truth.store_troubles += 1
        return found

    def next_start(self) -> Fault | None:
        """Count a group that is started; return what goes wrong with it."""
        self._starts += 1
        return self._take("start", self._starts)

    def faults_at_step(self, rank: int, world_size: int, step: int) -> Iterator[Fault]:
        """Yield what goes wrong when a rank is at a step; each only once."""
        left = self._left.get(("step", step), [])
        for fault in [one for one in left if one.rank % world_size == rank]:
            left.remove(fault)
            yield fault

    # ------------------------------------------------------------------ faults that come

    def _strike(self, fault: Fault) -> None:
        if self.is_quiet:
            return
        self.tell(f"fault: {fault}")
        match fault.kind:
            case "node lost" | "node drains" | "node joins":
                self._change_nodes(fault)
            case "worker killed" | "worker warned":
                self._pick_worker(fault)
            case "driver killed" | "notice" | "stop" | "freeze" | "replaced":
                for launch in self.live_launches()[-1:]:
                    self._tell_driver(fault, launch)
            case "outage":
                self.truth.store_troubles += 1
                self.store_is_down_until = self.stage.now + fault.length_s
            case "rival":
                self.start_rival()
            case _:
                self.truth.damage_newest()

    def _change_nodes(self, fault: Fault) -> None:
        names = list(self.cluster.nodes)
        if fault.kind == "node joins" or not names:
            self.cluster.add()
            return
        name = names[fault.rank % len(names)]
        if fault.kind == "node lost":
            self.cluster.lose(name)
            self.stage.after(fault.length_s, self._replace_node)
        elif self.cluster.nodes[name].leaves is None:
            self.truth.node_leaves(name)
            self.cluster.drain(name, self.clock.now() + fault.length_s)
            self.stage.after(fault.length_s, partial(self.cluster.lose, name))
            self.stage.after(fault.length_s * 1.5, self._replace_node)

    def _replace_node(self) -> None:
        if len(self.cluster.nodes) < self.story.setting.nodes:
            self.cluster.add()

    def _pick_worker(self, fault: Fault) -> None:
        live = [one for engine in self.cluster.engines for one in engine.live_workers()]
        for worker in live[fault.rank % max(1, len(live)) :][:1]:
            if fault.kind == "worker killed":
                worker.die(9)
            elif worker.group is not None:
                self.truth.is_warned(worker.group)
                worker.hear_signal(15)

    def _tell_driver(self, fault: Fault, launch: Launch) -> None:
        if fault.kind == "driver killed":
            self.kill(launch.process)
        elif fault.kind in ("freeze", "replaced"):
            launch.freeze(fault.length_s)
            everybody = self._machine_of(launch)
            for process in everybody if fault.rank else everybody[:1]:
                self.stage.freeze(process, fault.length_s)
            if fault.kind == "replaced":
                self.stage.after(fault.length_s / 2, self.start_rival)
        elif launch.controller is not None and fault.kind == "stop":
            launch.is_asked_to_stop = True
            launch.controller.stop(Ending.STOPPED)
        elif launch.controller is not None:
            self.truth.driver_leaves(launch)
            deadline = self.clock.now() + fault.length_s if fault.rank else None
            launch.controller.notice(Notice(deadline, None, "the story"))
            self.stage.after(fault.length_s, partial(self._driver_leaves, launch))

    def _driver_leaves(self, launch: Launch) -> None:
        if launch in self.live_launches():
            self.kill(launch.process)

    def _machine_of(self, launch: Launch) -> list[Process]:
        engines = [one for one in self.cluster.engines if one.driver is launch.process]
        workers = [one.process for engine in engines for one in engine.live_workers()]
        return [launch.process, *workers]

    def live_launches(self) -> list[Launch]:
        """Return the launches whose driver runs."""
        return [one for one in self.truth.launches if not one.is_over]

    # ------------------------------------------------------------------ the end of processes

    def kill(self, process: Process) -> None:
        """Kill a process; workers end soon after their driver, if not with it."""
        self.tell(f"{process} is killed")
        owner = process.owner
        if not isinstance(owner, Launch):
            worker: SimWorker = owner  # type: ignore[assignment]  # there is nothing else
            worker.die(9)
            return
        self.stage.kill(process)
        owner.end(None)
        for engine in [one for one in self.cluster.engines if one.driver is process]:
            engine.orphan(self.story.setting.orphans_s * self.dice.random())

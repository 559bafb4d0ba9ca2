"""Decides when a group has to move because machines leave, or may grow because machines join.

A group moves after its next checkpoint, so that nothing is lost; without one, when the time is up.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.clock import Clock
from holdfast.control.host.preemption import MARGIN_S, Notice
from holdfast.control.run.group import Group
from holdfast.control.run.plan import Plan
from holdfast.core.placement import Place, capacity, place
from holdfast.core.run.outcomes import Died, Evicted, Finished, WorkerExit
from holdfast.engine.base import Engine
from holdfast.wire import Noticed, SaveWanted

log = logging.getLogger(__name__)


class Move(enum.Enum):
    """What to do with a group."""

    STAY = "stay"
    RESTART = "restart"  # with more workers
    EVICT = "evict"  # to other machines
    EXIT = "exit"  # this driver's machine leaves


@dataclass(frozen=True, slots=True)
class Departure:
    """Machines that leave, as their notices say.

    Attributes:
        nodes: The nodes that leave, None for the driver's own node and so for all.
        deadline: When, seconds since 1970; None if that is not known.
        ends: When to stop waiting for workers to save.
        step: How far the workers were when the first notice came; what they save later counts.
    """

    nodes: tuple[str, ...] | None
    deadline: float | None
    ends: float
    step: int

    def joined(self, later: Departure) -> Departure:
        """Return both departures as one."""
        nodes = None
        if self.nodes is not None and later.nodes is not None:
            nodes = tuple(dict.fromkeys((*self.nodes, *later.nodes)))
        deadlines = [at for at in (later.deadline, self.deadline) if at is not None]
        ends = min(later.ends, self.ends)
        return Departure(nodes, min(deadlines, default=None), ends, self.step)

    @property
    def takes_driver(self) -> bool:
        """Whether the machine of this process leaves too."""
        return self.nodes is None

    def takes(self, node: str) -> bool:
        """Whether a node leaves."""
        return self.nodes is None or node in self.nodes

    def message(self, group: Group) -> Noticed:
        """Return the message to the workers."""
        ranks_by_node = group.ranks_by_node()
        return Noticed(
            self.deadline, {node: ranks_by_node[node] for node in ranks_by_node if self.takes(node)}
        )

    def describe(self, now: float) -> str:
        """Return one line for the log."""
        who = "this machine" if self.nodes is None else f"node {', '.join(self.nodes)}"
        when = "soon" if self.deadline is None else f"in {max(0.0, self.deadline - now):.0f} s"
        return f"{who} will be taken away {when}; waiting for the next checkpoint"


def find_room(plan: Plan, engine: Engine, before: Sequence[Place]) -> list[Place] | None:
    """Return where the next group goes, None if there is not enough room for it now."""
    nodes = engine.nodes()
    most = int(min(plan.workers, capacity(nodes, plan.demand)))
    return None if most < plan.fewest else place(nodes, plan.demand, most, before)


def without_workers(notice: Notice) -> Move:
    """Return what a notice means while no worker runs."""
    return Move.EXIT if notice.nodes is None else Move.STAY


class Relocation:
    """Watches the nodes of one group."""

    def __init__(self, group: Group, plan: Plan, engine: Engine, clock: Clock) -> None:
        self._group, self._plan, self._engine, self._clock = group, plan, engine, clock
        self._departure: Departure | None = None
        self._wants_more = False
        self._looks_at = float("inf")
        if len(group.places) < plan.workers:
            self._looks_at = clock.monotonic() + plan.resize_after_s

    @property
    def is_leaving(self) -> bool:
        """Whether this driver's machine leaves, and the group with it."""
        return self._departure is not None and self._departure.takes_driver

    # ------------------------------------------------------------------ notices

    def notice(self, notice: Notice) -> Move:
        """Inform the workers, if there are any, that machines leave."""
        group = self._group
        if group.is_over:
            return without_workers(notice)
        now = self._clock.now()
        ends = now + self._plan.notice_s
        if notice.deadline is not None:
            ends = notice.deadline - MARGIN_S
        departure = Departure(notice.nodes, notice.deadline, ends, group.step_reached)
        if self._departure is not None:
            departure = self._departure.joined(departure)
        self._departure = departure
        log.warning("holdfast: %s: %s", notice.source, departure.describe(now))
        group.tell_all(departure.message(group))
        return Move.STAY

    def warned(self, rank: int, number: int) -> Move:
        """Handle that a worker got a signal to end: its machine is about to leave."""
        node = self._group.places[rank].node
        nodes = (node,) if self._engine.can_grow() else None
        return self.notice(Notice(None, nodes, f"signal {number} to rank {rank}"))

    def saved(self, step: int) -> Move:
        """Return what to do now that a checkpoint of this step was saved."""
        if self._departure is not None and step > self._departure.step:
            return self._move()
        return Move.RESTART if self._wants_more else Move.STAY

    def look(self) -> Move:
        """Return what to do because time has passed, or nodes have changed."""
        if self._group.is_over:
            return Move.STAY
        if self._departure is not None:
            return self._move() if self._clock.now() >= self._departure.ends else Move.STAY
        if self._clock.monotonic() >= self._looks_at:
            self.nodes_changed()
        return Move.STAY

    def nodes_changed(self) -> None:
        """Check whether a node of the group leaves, or a group smaller than wanted can grow."""
        group = self._group
        if group.is_over:
            return
        nodes = self._engine.nodes()
        used = set(group.ranks_by_node())
        leaving = {node.name: node.leaves for node in nodes if node.leaves and node.name in used}
        if leaving:
            self.notice(Notice(min(leaving.values()), tuple(leaving), "the cluster"))
            return
        self._looks_at = self._clock.monotonic() + self._plan.resize_after_s
        workers = min(self._plan.workers, capacity(nodes, self._plan.demand))
        if len(group.places) >= workers:
            self._wants_more = False  # the room is gone again
        elif not self._wants_more:
            self._wants_more = True
            log.warning("there is room for %d workers: restart after the next checkpoint", workers)
            group.tell_all(SaveWanted())

    def _move(self) -> Move:
        return Move.EXIT if self.is_leaving else Move.EVICT

    # ------------------------------------------------------------------ how workers end

    def as_known(self, ended: WorkerExit) -> WorkerExit:
        """Return how a worker ended; the engine does not know that its node left."""
        departure = self._departure
        if departure is None or not isinstance(ended, Evicted | Died):
            return ended
        is_taken = departure.takes(ended.node)
        return Evicted(ended.rank, ended.node, preempted=True) if is_taken else ended

    def ends_run(self, exits: Sequence[WorkerExit]) -> bool:
        """Whether the run is to be resumed elsewhere, now that its group has ended.

        That is so if the driver's machine leaves. A failure meanwhile is probably a consequence:
        processes of a worker may have been signalled too. A worker that returned after user code
        saw the notice may have stopped early; to resume once more costs little, while taking the
        run for finished would lose the rest of it.
        """
        if not self.is_leaving:
            return False
        for ended in exits:
            if ended.has_failed:
                log.warning(
                    "holdfast: while this machine was being taken away: %s", ended.describe()
                )
        return self._group.saw_notice or not all(isinstance(ended, Finished) for ended in exits)

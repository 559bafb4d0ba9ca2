"""Machines that leave and machines that join: when a group has to move, or may.

A group moves after its next checkpoint, so that nothing is lost by it; and without one, when the
time is up.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Sequence

from holdfast.clock import Clock
from holdfast.control.host.preemption import Notice
from holdfast.control.run.group import Group
from holdfast.control.run.leaving import Leaving
from holdfast.control.run.plan import Plan
from holdfast.core.placement import Place, capacity, place
from holdfast.core.run.outcomes import Died, Evicted, Finished, WorkerExit
from holdfast.engine.base import Engine
from holdfast.wire import SaveWanted

log = logging.getLogger(__name__)


class Move(enum.Enum):
    """What must become of a group."""

    STAY = "stay"
    RESTART = "restart"  # with more workers
    EVICT = "evict"  # to other machines
    EXIT = "exit"  # this driver's machine goes


def find_room(plan: Plan, engine: Engine, before: Sequence[Place]) -> list[Place] | None:
    """Return where the next group goes, None if there is not enough room for it now."""
    nodes = engine.nodes()
    most = int(min(plan.workers, capacity(nodes, plan.demand)))
    return None if most < plan.fewest else place(nodes, plan.demand, most, before)


def without_workers(notice: Notice) -> Move:
    """Return what a notice means while no worker runs."""
    return Move.EXIT if notice.nodes is None else Move.STAY


class Relocation:
    """Where the workers of one group are, and where they are to be."""

    def __init__(self, group: Group, plan: Plan, engine: Engine, clock: Clock) -> None:
        self._group, self._plan, self._engine, self._clock = group, plan, engine, clock
        self._leaving: Leaving | None = None
        self._wants_more = False
        self._looks_at = float("inf")
        if len(group.places) < plan.workers:
            self._looks_at = clock.monotonic() + plan.resize_after_s

    @property
    def is_leaving(self) -> bool:
        """Whether this driver's machine goes, and the group with it."""
        return self._leaving is not None and self._leaving.takes_driver

    # ------------------------------------------------------------------ what happens

    def notice(self, notice: Notice) -> Move:
        """Tell the workers that machines leave, if there are workers."""
        group = self._group
        if group.is_over:
            return without_workers(notice)
        now = self._clock.now()
        self._leaving = Leaving.of(notice, group, now, self._plan.notice_s, self._leaving)
        log.warning("holdfast: %s: %s", notice.source, self._leaving.describe(now))
        group.tell_all(self._leaving.message(group))
        return Move.STAY

    def warned(self, rank: int, number: int) -> Move:
        """Take in that a worker was told to go: its machine is about to leave."""
        node = self._group.places[rank].node
        nodes = (node,) if self._engine.can_grow() else None
        return self.notice(Notice(None, nodes, f"signal {number} to rank {rank}"))

    def saved(self, step: int) -> Move:
        """Return what a checkpoint makes possible."""
        if self._leaving is not None and step > self._leaving.step:
            return self._move()
        return Move.RESTART if self._wants_more else Move.STAY

    def look(self) -> Move:
        """Return what must be done because time has passed, or nodes have changed."""
        if self._group.is_over:
            return Move.STAY
        if self._leaving is not None:
            return self._move() if self._clock.now() >= self._leaving.ends else Move.STAY
        if self._clock.monotonic() >= self._looks_at:
            self.nodes_changed()
        return Move.STAY

    def nodes_changed(self) -> None:
        """See whether a node of the group's leaves, or a group smaller than wanted could grow."""
        group = self._group
        if group.is_over:
            return
        nodes = self._engine.nodes()
        used = set(group.ranks_by_node())
        going = {node.name: node.leaves for node in nodes if node.leaves and node.name in used}
        if going:
            self.notice(Notice(min(going.values()), tuple(going), "the cluster"))
            return
        self._looks_at = self._clock.monotonic() + self._plan.resize_after_s
        more = min(self._plan.workers, capacity(nodes, self._plan.demand))
        if len(group.places) >= more:
            self._wants_more = False  # the room is gone again
        elif not self._wants_more:
            self._wants_more = True
            log.warning("there is room for %d workers: restart after the next checkpoint", more)
            group.tell_all(SaveWanted())

    def _move(self) -> Move:
        return Move.EXIT if self.is_leaving else Move.EVICT

    # ------------------------------------------------------------------ how workers end

    def as_known(self, ended: WorkerExit) -> WorkerExit:
        """Return how a worker ended, as far as more is known of it than the engine can see."""
        leaving = self._leaving
        if leaving is not None and isinstance(ended, Evicted | Died) and leaving.takes(ended.node):
            return Evicted(ended.rank, ended.node, preempted=True)
        return ended

    def ends_run(self, exits: Sequence[WorkerExit]) -> bool:
        """Whether the run is to be carried on elsewhere, now that a group has ended.

        Its driver's machine leaves. Who failed meanwhile has done so because of that, as like as
        not: what it had started may have been told to go, too. Who returned after user code was
        told may have been done just then; carrying on once more costs little, and taking a run for
        finished that is not would cost the rest of it.
        """
        if not self.is_leaving:
            return False
        failed = [one for one in exits if one.has_failed]
        for one in failed:
            log.warning("holdfast: while this machine was being taken away: %s", one.describe())
        return self._group.saw_notice or not all(isinstance(one, Finished) for one in exits)

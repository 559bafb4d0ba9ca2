"""Ranks of a lost group that ended in the same way, the likeliest cause of it all first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from holdfast.core.card_text import duration, plain_lines
from holdfast.core.crash_stacks import crash_place, crash_report
from holdfast.core.failure.hints import concise, is_aftermath
from holdfast.core.failure.stacks import place_of, waits_in
from holdfast.core.failure.traces import place_in
from holdfast.core.log_lines import ranks_text
from holdfast.core.outcomes import (
    Died,
    Evicted,
    Finished,
    Hung,
    Raised,
    WorkerExit,
    how_it_died,
    likeness,
)

HUNG_ALONE_MAX = 8  # if more hang, those that stand at the same place share a line
_SIGABRT = 6
_ON_PURPOSE = 7  # the place in order of ranks that did not fail


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that ended in the same way; `exit` is that of the first of them."""

    exit: WorkerExit
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    order: tuple[int, int, int]
    varies: bool = False  # whether the words of each differ, if only in numbers

    @property
    def is_failure(self) -> bool:
        return self.order[0] < _ON_PURPOSE

    @property
    def is_hung(self) -> bool:
        return isinstance(self.exit, Hung)

    @property
    def label(self) -> str:
        text = ranks_text(self.ranks)
        return text if len(text) <= 30 else f"{len(self.ranks)} ranks"

    @property
    def where(self) -> str:
        if not isinstance(self.exit, Raised | Died | Hung) or _is_node_lost(self.exit):
            return ""
        where = self.nodes[0] if len(self.nodes) == 1 else f"{len(self.nodes)} nodes"
        if isinstance(self.exit, Died) and len(self.ranks) == 1:
            where = f"{where}, pid {self.exit.pid}"
        return f"{where}: "

    def who(self, total: int) -> str:
        if len(self.ranks) == total > 1:
            return f"all {total} ranks"
        return f"{self.label} of {total}" if total > 1 else self.label

    def how(self, *, brief: bool = False) -> str:
        many = len(self.ranks) > 1
        match self.exit:
            case Finished():
                return "finished"
            case Raised(error=error):
                first = concise((plain_lines(error) or ["an error without a name"])[0])
                return f"raised {first.partition(':')[0] if brief else first}"
            case Died(node=node) if self.exit.node_lost:
                return f"{'were' if many else 'was'} lost with node {node}"
            case Died():
                how = how_it_died(self.exit)
                return how.replace("was ", "were ", 1).replace("its", "their") if many else how
            case Hung(idle_s=idle_s, stacks=stacks):
                waits = None if brief else waits_in(stacks)
                where = f", {'wait' if many else 'waits'} in {waits}" if waits else ""
                return f"made no progress for {duration(idle_s)}{where}"
            case Evicted(node=node) if self.exit.preempted:
                what = f"node {node} is" if len(self.nodes) == 1 else f"{len(self.nodes)} nodes are"
                return f"must go: {what} taken away"
            case Evicted():
                return "stopped by us"
            case _:
                assert_never(self.exit)


def groups_of(exits: Sequence[WorkerExit], *, first_stopped: int | None = None) -> list[Group]:
    """Return the ranks by how they ended, the likeliest cause of it all first."""
    alike: dict[tuple[object, ...], list[WorkerExit]] = {}
    hung = sum(isinstance(one, Hung) for one in exits)
    for one in sorted(exits, key=lambda one: one.rank):
        kind = _kind(one)
        if isinstance(one, Hung) and hung <= HUNG_ALONE_MAX:
            kind = (*kind, one.rank)  # a line for each
        alike.setdefault(kind, []).append(one)
    groups: list[Group] = []
    for members in alike.values():
        shown = min(members, key=lambda one: (one.rank != first_stopped, -_idle(one), one.rank))
        ranks = tuple(one.rank for one in members)
        nodes = tuple(dict.fromkeys(one.node for one in members))
        varies = len({one.error for one in members if isinstance(one, Raised)}) > 1
        order = _order(shown), _suspicion(shown, first_stopped), shown.rank
        groups.append(Group(shown, ranks, nodes, order, varies))
    return sorted(groups, key=lambda one: one.order)


def _kind(one: WorkerExit) -> tuple[object, ...]:
    """Return what two ranks that ended in the same way have in common."""
    match one:
        case Raised(error=error):
            return "raised", likeness(error)
        case Died(node=node) if one.node_lost:
            return "node lost", node
        case Died():
            return "died", how_it_died(one)
        case Evicted():
            return "evicted", one.preempted
        case Hung(stacks=stacks):
            return "hung", waits_in(stacks), place_of(stacks)
        case _:
            return (type(one).__name__,)


def _order(one: WorkerExit) -> int:
    """Return how likely it is the cause: what comes from outside first, aftermath last."""
    match one:
        case Evicted():
            return 0 if one.preempted else _ON_PURPOSE
        case Died():
            if one.node_lost:
                return 1
            # A process whose peer is gone may be told so by its library in native code, and abort.
            return 5 if one.signal == _SIGABRT and not one.out_of_memory else 2
        case Hung():
            return 3
        case Raised(error=error):
            return 6 if is_aftermath(error) else 4
        case Finished():
            return _ON_PURPOSE + 1
        case _:
            assert_never(one)


def _suspicion(one: WorkerExit, first_stopped: int | None) -> int:
    """Return the place among those that hang: who waits for others is rarely the cause."""
    if not isinstance(one, Hung):
        return 0
    return 2 * (waits_in(one.stacks) is not None) + (one.rank != first_stopped)


def _is_node_lost(one: WorkerExit) -> bool:
    return isinstance(one, Died) and one.node_lost


def _idle(one: WorkerExit) -> float:
    return one.idle_s if isinstance(one, Hung) else 0.0


def place_of_end(ended: WorkerExit, ours: str | None) -> str | None:
    """Return where the user's own code stood when a rank ended, None if that is not known."""
    match ended:
        case Raised(trace=trace):
            return place_in(trace, ours)
        case Died(last_lines=lines):
            return crash_place(crash_report(lines))
        case Hung(stacks=stacks):
            return place_of(stacks)
        case _:
            return None


def all_hung(groups: Sequence[Group]) -> Group:
    """Return the first group with all others that hang; itself if it does not."""
    first = groups[0]
    if not first.is_hung:
        return first
    ranks = sorted(rank for one in groups if one.is_hung for rank in one.ranks)
    return replace(first, ranks=tuple(ranks))

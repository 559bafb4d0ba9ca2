"""Ranks of a lost group that ended in the same way, the likeliest cause of it all first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.core.failure.kinds import ON_PURPOSE, how, order, process_of, sameness
from holdfast.core.failure.stacks import waits_in
from holdfast.core.log_lines import ranks_text
from holdfast.core.run.outcomes import Blame, Hung, Raised, WorkerExit

HUNG_ALONE_MAX = 8  # if more hang, those that stand at the same place share a line


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
        return self.order[0] < ON_PURPOSE

    @property
    def is_hung(self) -> bool:
        return isinstance(self.exit, Hung)

    @property
    def label(self) -> str:
        text = ranks_text(self.ranks)
        return text if len(text) <= 30 else f"{len(self.ranks)} ranks"

    @property
    def where(self) -> str:
        if not self.exit.has_failed or self.exit.blame is Blame.NODE:
            return ""
        where = self.nodes[0] if len(self.nodes) == 1 else f"{len(self.nodes)} nodes"
        process = process_of(self.exit)
        return f"{where}, {process}: " if process and len(self.ranks) == 1 else f"{where}: "

    def who(self, total: int) -> str:
        if len(self.ranks) == total > 1:
            return f"all {total} ranks"
        return f"{self.label} of {total}" if total > 1 else self.label

    def how(self, *, brief: bool = False) -> str:
        return how(self.exit, self.nodes, many=len(self.ranks) > 1, brief=brief)


def groups_of(exits: Sequence[WorkerExit], *, first_stopped: int | None = None) -> list[Group]:
    """Return the ranks by how they ended, the likeliest cause of it all first."""
    alike: dict[tuple[object, ...], list[WorkerExit]] = {}
    hung = sum(isinstance(one, Hung) for one in exits)
    for one in sorted(exits, key=lambda one: one.rank):
        kind = sameness(one)
        if isinstance(one, Hung) and hung <= HUNG_ALONE_MAX:
            kind = (*kind, one.rank)  # a line for each
        alike.setdefault(kind, []).append(one)
    groups: list[Group] = []
    for members in alike.values():
        shown = min(members, key=lambda one: (one.rank != first_stopped, -_idle(one), one.rank))
        ranks = tuple(one.rank for one in members)
        nodes = tuple(dict.fromkeys(one.node for one in members))
        varies = len({one.error for one in members if isinstance(one, Raised)}) > 1
        place = order(shown), _suspicion(shown, first_stopped), shown.rank
        groups.append(Group(shown, ranks, nodes, place, varies))
    return sorted(groups, key=lambda one: one.order)


def _suspicion(one: WorkerExit, first_stopped: int | None) -> int:
    """Return the place among those that hang: who waits for others is rarely the cause."""
    if not isinstance(one, Hung):
        return 0
    return 2 * (waits_in(one.stacks) is not None) + (one.rank != first_stopped)


def _idle(one: WorkerExit) -> float:
    return one.idle_s if isinstance(one, Hung) else 0.0


def all_hung(groups: Sequence[Group]) -> Group:
    """Return the first group with all others that hang; itself if it does not."""
    first = groups[0]
    if not first.is_hung:
        return first
    ranks = sorted(rank for one in groups if one.is_hung for rank in one.ranks)
    return replace(first, ranks=tuple(ranks))

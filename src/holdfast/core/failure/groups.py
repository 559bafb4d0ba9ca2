"""Groups the ranks of a lost group by how they ended, the likeliest cause first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.core.failure.kinds import ON_PURPOSE, order, predicate, process_of, sameness
from holdfast.core.failure.stacks import waits_in
from holdfast.core.log_lines import ranks_text
from holdfast.core.run.outcomes import Blame, Hung, Raised, WorkerExit

HUNG_ALONE_MAX = 8  # if more ranks hang, those at the same place share a line


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that ended in the same way; `exit` is that of the first of them."""

    exit: WorkerExit
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    order: tuple[int, int, int]
    varies: bool = False  # whether their error messages differ, if only in numbers

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

    def predicate(self, *, brief: bool = False) -> str:
        return predicate(self.exit, self.nodes, many=len(self.ranks) > 1, brief=brief)


def groups_of(exits: Sequence[WorkerExit], *, first_stopped: int | None = None) -> list[Group]:
    """Return the ranks by how they ended, the likeliest cause first."""
    alike: dict[tuple[object, ...], list[WorkerExit]] = {}
    hung = sum(isinstance(ended, Hung) for ended in exits)
    for ended in sorted(exits, key=lambda ended: ended.rank):
        kind = sameness(ended)
        if isinstance(ended, Hung) and hung <= HUNG_ALONE_MAX:
            kind = (*kind, ended.rank)  # a line for each
        alike.setdefault(kind, []).append(ended)
    groups: list[Group] = []
    for members in alike.values():
        shown = min(members, key=lambda end: (end.rank != first_stopped, -_idle(end), end.rank))
        ranks = tuple(ended.rank for ended in members)
        nodes = tuple(dict.fromkeys(ended.node for ended in members))
        varies = len({ended.error for ended in members if isinstance(ended, Raised)}) > 1
        place = order(shown), _suspicion(shown, first_stopped), shown.rank
        groups.append(Group(shown, ranks, nodes, place, varies))
    return sorted(groups, key=lambda group: group.order)


def _suspicion(ended: WorkerExit, first_stopped: int | None) -> int:
    """Return the order among hung ranks: one that waits for others is rarely the cause."""
    if not isinstance(ended, Hung):
        return 0
    return 2 * (waits_in(ended.stacks) is not None) + (ended.rank != first_stopped)


def _idle(ended: WorkerExit) -> float:
    return ended.idle_s if isinstance(ended, Hung) else 0.0


def all_hung(groups: Sequence[Group]) -> Group:
    """Return the first group, with the ranks of all hung groups if it hung."""
    first = groups[0]
    if not first.is_hung:
        return first
    ranks = sorted(rank for group in groups if group.is_hung for rank in group.ranks)
    return replace(first, ranks=tuple(ranks))

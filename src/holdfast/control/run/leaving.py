"""Machines that are about to leave: what workers are told, and until when they are waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.control.host.preemption import Notice
from holdfast.wire import Noticed

if TYPE_CHECKING:  # a study has use for this module, and none for groups
    from holdfast.control.run.group import Group

MARGIN_S = 1.0  # for stopping and for leaving the record in order, before the machine is gone


@dataclass(frozen=True, slots=True)
class Leaving:
    """A notice that a group has been given.

    Attributes:
        nodes: Which leave, None for the one this driver is on, and so for all.
        deadline: When, seconds since 1970; None if nobody knows.
        ends: When to stop waiting for workers to save.
        step: How far the workers were when the notice came; what they save later counts.
    """

    nodes: tuple[str, ...] | None
    deadline: float | None
    ends: float
    step: int

    @classmethod
    def of(
        cls, notice: Notice, group: Group, now: float, assumed_s: float, before: Leaving | None
    ) -> Leaving:
        """Return what a notice means for a group that may have had another before."""
        nodes, deadline = notice.nodes, notice.deadline
        ends = now + assumed_s if deadline is None else deadline - MARGIN_S
        if before is None:
            return cls(nodes, deadline, ends, group.step_reached)
        both = None if nodes is None or before.nodes is None else (*before.nodes, *nodes)
        known = [one for one in (deadline, before.deadline) if one is not None]
        return cls(
            None if both is None else tuple(dict.fromkeys(both)),
            min(known, default=None),
            min(ends, before.ends),
            before.step,
        )

    @property
    def takes_driver(self) -> bool:
        """Whether this process goes too."""
        return self.nodes is None

    def takes(self, node: str) -> bool:
        """Whether a node goes."""
        return self.nodes is None or node in self.nodes

    def message(self, group: Group) -> Noticed:
        """Return what the workers are told."""
        ranks = {node: all_on for node, all_on in group.ranks_by_node().items() if self.takes(node)}
        return Noticed(self.deadline, ranks)

    def describe(self, now: float) -> str:
        """Return one line for people."""
        who = "this machine" if self.nodes is None else f"node {', '.join(self.nodes)}"
        when = "soon" if self.deadline is None else f"in {max(0.0, self.deadline - now):.0f} s"
        return f"{who} will be taken away {when}; waiting for the next checkpoint"

"""When a group that is smaller than wanted is started again with more workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from holdfast.control.run.group import Group
from holdfast.control.run.plan import Plan
from holdfast.control.run.relocation import Move, Relocation
from holdfast.core.checkpoint.retention import Retention
from holdfast.core.placement import Demand, Node, Place
from holdfast.core.run.budget import Budget
from holdfast.engine.base import Engine
from holdfast.wire import Message
from tests.clocks import FakeClock

PLAN = Plan(
    function=print,
    config=None,
    workers=2,
    workers_min=1,
    demand=Demand(each={"CPU": 1.0}),
    budget=Budget(),
    retention=Retention(),
    log_folder="logs",
)


@dataclass
class Some:
    """A group of one worker, as far as it is looked at here."""

    places: tuple[Place, ...] = (Place(0, 1, 0, 1, 0, "a"),)
    is_over: bool = False
    sent: list[Message] = field(default_factory=list)

    def ranks_by_node(self) -> dict[str, list[int]]:
        return {"a": [0]}

    def tell_all(self, message: Message) -> None:
        self.sent.append(message)


@dataclass
class Cluster:
    """An engine, as far as it is looked at here."""

    names: list[str] = field(default_factory=lambda: ["a"])

    def nodes(self) -> list[Node]:
        return [Node(name, {"CPU": 1.0}) for name in self.names]


def test_a_group_does_not_move_for_room_that_is_gone_again() -> None:
    cluster, some = Cluster(), Some()
    moving = Relocation(cast(Group, some), PLAN, cast(Engine, cluster), FakeClock())
    cluster.names = ["a", "b"]
    moving.nodes_changed()
    cluster.names = ["a"]
    moving.nodes_changed()

    assert moving.saved(1) is Move.STAY

    cluster.names = ["a", "c"]
    moving.nodes_changed()

    assert moving.saved(2) is Move.RESTART
    assert len(some.sent) == 2  # that a checkpoint is wanted

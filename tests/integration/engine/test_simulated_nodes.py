"""Nodes that fail, join and are about to leave, under workers that run on them."""

from __future__ import annotations

import threading
from collections import UserDict
from collections.abc import KeysView
from pathlib import Path

import pytest

from holdfast.core.run.outcomes import Died, Evicted, Finished
from holdfast.engine.base import Ended, EngineError, NodesChanged, WorkerSpec
from holdfast.engine.local.engine import LocalEngine
from holdfast.engine.nodes import LocalNodes
from holdfast.testing.suites.engine import ENTRY, ends, is_running, log_of, reports, start, state_of
from holdfast.wire import Assigned
from tests.patience import PATIENCE_S, pause


def names(engine: LocalEngine) -> list[str]:
    return [node.name for node in engine.nodes()]


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.req("T-037")
def test_a_lost_node_takes_its_workers_with_it(
    engine: LocalEngine, nodes: LocalNodes, tmp_path: Path
) -> None:
    start(engine, tmp_path, "hang", "hang", "hang", "hang")

    nodes.fail("node-1")
    lost = ends(engine, 2)
    engine.stop_group(1)

    assert sorted(lost) == [1, 3]
    assert all(isinstance(one.exit, Died) and one.exit.node_lost for one in lost.values())
    assert all(isinstance(one.exit, Evicted) for one in ends(engine, 2).values())
    assert names(engine) == ["node-0"]


class Loses(UserDict[str, str]):
    """Variables for a worker whose node is lost when somebody looks at them."""

    def __init__(self, nodes: LocalNodes, name: str) -> None:
        super().__init__()
        self._nodes, self._name = nodes, name

    def keys(self) -> KeysView[str]:
        self._nodes.fail(self._name)
        return super().keys()


def test_a_node_that_is_lost_while_its_worker_is_asked_for_takes_it_with_it(
    engine: LocalEngine, nodes: LocalNodes, tmp_path: Path
) -> None:
    """It was there when the group was begun, and is not when the worker is."""
    first = Assigned(b"hang")
    log = str(tmp_path / "log")
    spec = WorkerSpec(
        rank=0, node="node-1", log=log, first=first, environment=Loses(nodes, "node-1")
    )

    engine.start_group(1, [spec])

    lost = ends(engine, 1)[0].exit
    assert isinstance(lost, Died)
    assert lost.node_lost


def test_a_node_is_lost_at_once_even_if_nobody_listens(
    engine: LocalEngine, nodes: LocalNodes, tmp_path: Path
) -> None:
    start(engine, tmp_path, "hang", "parent child hang")
    parent, child = reports(engine, 2)
    zygote, pids = parent["parent"], [parent["pid"], child["child"]]

    thread = threading.Thread(target=nodes.fail, args=("node-1",))
    thread.start()
    thread.join()
    for pid in pids:
        while is_running(pid):
            pause()
    while len(children_of(zygote)) > 1 or state_of(zygote) != "S":
        pause()  # it has told of everything when it sleeps again

    [lost] = ends(engine, 1).values()
    assert isinstance(lost.exit, Died)
    assert lost.exit.node_lost


def test_what_a_worker_had_said_comes_before_the_loss_of_its_node(
    engine: LocalEngine, nodes: LocalNodes, tmp_path: Path
) -> None:
    start(engine, tmp_path, "report=50 print=sent hang")
    while log_of(tmp_path, 0).read_text() != "sent\n":
        pause()

    nodes.fail("node-0")
    events = [engine.next_event(PATIENCE_S) for _ in range(52)]

    assert events.count(NodesChanged()) == 1
    assert isinstance(events[-1], Ended)


@pytest.mark.req("T-044")
def test_a_node_that_joins_ends_the_wait_for_one(engine: LocalEngine, nodes: LocalNodes) -> None:
    thread = threading.Timer(0.05, nodes.join)
    thread.start()

    assert engine.can_grow()
    assert engine.next_event(None) == NodesChanged()
    assert names(engine) == ["node-0", "node-1", "node-2"]
    thread.join()


def test_many_changes_are_told_as_one(engine: LocalEngine, nodes: LocalNodes) -> None:
    nodes.join()
    nodes.fail("node-0")
    nodes.join()

    assert engine.next_event(0.0) == NodesChanged()
    assert engine.next_event(0.0) is None
    assert names(engine) == ["node-1", "node-2", "node-3"]


def test_a_node_that_will_leave_keeps_its_workers(
    engine: LocalEngine, nodes: LocalNodes, tmp_path: Path
) -> None:
    start(engine, tmp_path, "report=1 hang", "report=1 hang")
    reports(engine, 2)

    nodes.drain("node-1", leaves=1234.5)

    assert engine.next_event(PATIENCE_S) == NodesChanged()
    assert engine.next_event(0.1) is None
    assert [node.leaves for node in engine.nodes()] == [None, 1234.5]


def test_nothing_is_started_on_a_node_that_is_gone(
    engine: LocalEngine, nodes: LocalNodes, tmp_path: Path
) -> None:
    nodes.fail("node-1")
    specs = [
        WorkerSpec(rank=rank, node=f"node-{rank}", log=str(log_of(tmp_path, rank)))
        for rank in range(2)
    ]

    with pytest.raises(EngineError, match="there is no node 'node-1'"):
        engine.start_group(1, specs)

    assert engine.next_event(0.0) == NodesChanged()
    assert engine.next_event(0.0) is None


def test_the_failure_of_a_node_does_not_reach_one_of_the_same_name(
    engine: LocalEngine, nodes: LocalNodes, tmp_path: Path
) -> None:
    start(engine, tmp_path, "hang", "hang")
    nodes.fail("node-1")
    nodes.join("node-1")
    engine.stop_group(1)
    ends(engine, 2)

    start(engine, tmp_path, "report=1", "report=1", group=2)

    assert all(isinstance(one.exit, Finished) for one in ends(engine, 2).values())


def test_a_node_fails_for_every_engine_that_uses_it(nodes: LocalNodes, tmp_path: Path) -> None:
    engines = [LocalEngine(ENTRY, nodes=nodes) for _ in range(2)]
    try:
        for number, engine in enumerate(engines):
            start(engine, tmp_path / str(number), "hang", "hang")
        engines[0].close()

        nodes.fail("node-0")
        lost = ends(engines[1], 1)

        assert sorted(lost) == [0]
    finally:
        for engine in engines:
            engine.close()

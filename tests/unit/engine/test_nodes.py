"""Simulated nodes: their names, room and GPUs, and notifications of changes."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from holdfast.core.placement import Demand, Node
from holdfast.core.study.offers import Offer
from holdfast.engine.claims import ClaimsFolder
from holdfast.engine.machine import gpus_here, room_here
from holdfast.engine.nodes import LocalNodes, OfferedNodes
from holdfast.errors import ConfigError


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def names(nodes: LocalNodes) -> list[str]:
    return [node.name for node in nodes.now()]


def test_without_simulation_there_is_this_machine() -> None:
    nodes = LocalNodes()
    [node] = nodes.now()

    assert node.name == "node-0"
    assert node.room == room_here()
    assert node.room["CPU"] >= 1
    assert node.room["memory"] > 1 << 20
    assert "GPU" not in node.room
    assert not nodes.are_simulated


def test_each_node_has_the_room_that_was_asked_for() -> None:
    nodes = LocalNodes(2, {"CPU": 2, "licence": 1})

    rooms = [node.room for node in nodes.now()]
    assert [(room["CPU"], room["licence"]) for room in rooms] == [(2.0, 1.0), (2.0, 1.0)]
    assert all(room["memory"] == room_here()["memory"] for room in rooms)


def test_a_name_is_not_used_again_unless_it_is_asked_for() -> None:
    nodes = LocalNodes(2)
    nodes.fail("node-1")
    nodes.join("node-5")

    assert nodes.join().name == "node-3"
    assert nodes.join().name == "node-4"
    assert nodes.join().name == "node-6"
    assert nodes.join("node-1").name == "node-1"
    assert names(nodes) == ["node-0", "node-5", "node-3", "node-4", "node-6", "node-1"]


def test_listeners_are_notified_of_every_change_with_the_node_that_failed() -> None:
    nodes = LocalNodes(2)
    notified: list[str | None] = []
    nodes.subscribe(notified.append)

    nodes.fail("node-0")
    nodes.join()
    nodes.drain("node-1", leaves=5.0)
    nodes.unsubscribe(notified.append)
    nodes.unsubscribe(notified.append)
    nodes.fail("node-1")

    assert notified == ["node-0", None, None]


def test_one_who_is_told_may_look_and_change() -> None:
    nodes = LocalNodes(1)
    seen: list[list[str]] = []

    def replace(failed: str | None) -> None:
        seen.append(names(nodes))
        if failed is not None:
            nodes.join()

    nodes.subscribe(replace)
    nodes.fail("node-0")

    assert seen == [[], ["node-1"]]


@pytest.mark.parametrize("verb", ["fail", "drain"])
def test_what_is_not_there_cannot_change(verb: str) -> None:
    nodes = LocalNodes(2)
    with pytest.raises(ConfigError, match="there is no node 'node-7'") as caught:
        nodes.fail("node-7") if verb == "fail" else nodes.drain("node-7", 1.0)

    assert caught.value.hint == "the nodes are: node-0, node-1"


def test_a_node_cannot_join_twice() -> None:
    with pytest.raises(ConfigError, match="node 'node-0' exists already"):
        LocalNodes(1).join("node-0")


def test_this_machine_can_leave_but_not_fail_or_be_joined() -> None:
    nodes = LocalNodes()
    nodes.drain("node-0", leaves=9.0)

    assert nodes.now()[0].leaves == 9.0
    with pytest.raises(ConfigError, match="this machine cannot fail"):
        nodes.fail("node-0")
    with pytest.raises(ConfigError, match="this machine cannot join"):
        nodes.join()


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "2"])
def test_a_count_of_nodes_that_makes_no_sense_is_refused(count: object) -> None:
    with pytest.raises(ConfigError, match=r"nodes=.*: must be a whole number, 1 or more"):
        LocalNodes(count)  # type: ignore[arg-type]


@pytest.mark.parametrize("amount", [-1, math.nan, True, "2", None])
def test_room_that_makes_no_sense_is_refused(amount: object) -> None:
    with pytest.raises(ConfigError, match=r"room for CPU=.*: must be a number, 0 or more"):
        LocalNodes(1, {"CPU": amount})  # type: ignore[dict-item]


@pytest.mark.parametrize("amount", [0.5, math.inf])
def test_a_node_has_whole_gpus(amount: float) -> None:
    with pytest.raises(ConfigError, match="a node has whole GPUs"):
        LocalNodes(1, {"GPU": amount})


# ---------------------------------------------------------------------- GPUs


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("", ()),
        ("0,2", ("0", "2")),
        (" 1 , 0 ", ("1", "0")),
        ("-1", ()),
        ("0,-1,1", ("0",)),
        ("NoDevFiles", ()),
        ("GPU-8932f937,MIG-9c6f", ("GPU-8932f937", "MIG-9c6f")),
        ("0,0,1", ("0",)),
    ],
)
def test_gpus_are_those_that_cuda_would_see(
    chosen: str, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)

    assert gpus_here() == expected
    assert room_here().get("GPU", 0) == len(expected)


@pytest.mark.parametrize(
    "paths",
    [
        ["proc/driver/nvidia/gpus/0000:01:00.0", "proc/driver/nvidia/gpus/0000:02:00.0"],
        ["dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "dev/nvidia-uvm"],
        ["proc/driver/nvidia/gpus/a", "proc/driver/nvidia/gpus/b", "dev/nvidia0"],
    ],
)
def test_gpus_are_found_without_a_framework(
    paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    for path in paths:
        (tmp_path / path).mkdir(parents=True)

    assert gpus_here(str(tmp_path)) == ("0", "1")


def test_simulated_nodes_share_out_the_gpus_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    nodes = LocalNodes(2, {"GPU": 2})
    nodes.fail("node-0")
    nodes.join()

    assert [node.gpus for node in nodes.now()] == [("6", "7"), ("4", "5")]


def test_gpus_that_are_not_there_can_be_simulated() -> None:
    nodes = LocalNodes(2, {"GPU": 2})

    assert [node.gpus for node in nodes.now()] == [("0", "1"), ("0", "1")]
    assert [node.room["GPU"] for node in nodes.now()] == [2.0, 2.0]


# ---------------------------------------------------------------------- what a trial is offered


@pytest.fixture
def claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClaimsFolder:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return ClaimsFolder()


def test_a_run_gets_what_it_needs_once_another_has_given_it_back(
    claims: ClaimsFolder,
) -> None:
    offer = Offer((Node("n", {"GPU": 1.0}, ("0",)),), claims=claims.path)
    demand = Demand(each={"GPU": 1.0})
    first, second = OfferedNodes(offer), OfferedNodes(offer)

    assert first.reserve(demand, 1, 1)
    assert first.reserve(demand, 1, 1)
    assert not second.reserve(demand, 1, 1)
    first.release()
    assert second.reserve(demand, 1, 1)
    assert not first.reserve(demand, 1, 1)
    assert [node.gpus for node in second.now()] == [("0",)]


def test_a_run_that_needs_nothing_counted_claims_nothing(claims: ClaimsFolder) -> None:
    offer = Offer((Node("n", {"CPU": 1.0, "GPU": 1.0}, ("0",)),), claims=claims.path)
    nodes = OfferedNodes(offer)

    assert nodes.reserve(Demand(each={}), 4, 4)

    assert nodes.now() == offer.nodes
    assert sorted(os.listdir(claims.path)) == ["driver"]

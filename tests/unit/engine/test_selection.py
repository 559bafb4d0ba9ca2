"""`init`, `shutdown`, and the engine that trainers get without them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from holdfast.engine.selection import init, is_initialized, new_engine, shutdown
from holdfast.errors import ConfigError
from holdfast.testing.suites.engine import ENTRY


@pytest.fixture(autouse=True)
def nothing_chosen() -> Iterator[None]:
    shutdown()
    yield
    shutdown()


def test_without_a_choice_an_engine_is_on_this_machine() -> None:
    engine = new_engine(ENTRY)
    try:
        assert [node.name for node in engine.nodes()] == ["node-0"]
        assert not engine.can_grow()
        assert not is_initialized()
    finally:
        engine.close()


def test_all_engines_are_on_the_nodes_that_were_chosen() -> None:
    nodes = init(nodes=2, num_cpus=3, num_gpus=1, resources={"licence": 2})
    engines = [new_engine(ENTRY), new_engine(ENTRY)]
    try:
        nodes.join()
        for engine in engines:
            assert [node.name for node in engine.nodes()] == ["node-0", "node-1", "node-2"]
            room = engine.nodes()[0].room
            assert (room["CPU"], room["GPU"], room["licence"]) == (3.0, 1.0, 2.0)
            assert engine.can_grow()
    finally:
        for engine in engines:
            engine.close()
    assert is_initialized()


def test_the_machine_itself_can_be_given_another_size() -> None:
    nodes = init(num_cpus=64)

    assert [(node.name, node.room["CPU"]) for node in nodes.now()] == [("node-0", 64.0)]
    assert not nodes.are_simulated


def test_choosing_twice_is_an_error_unless_it_may_be_ignored() -> None:
    first = init(nodes=2)

    with pytest.raises(ConfigError, match="init was called before") as caught:
        init(nodes=3)
    assert "shutdown()" in str(caught.value.hint)
    assert init(nodes=3, ignore_reinit_error=True) is first


def test_after_a_shutdown_one_can_choose_again() -> None:
    init(nodes=2)
    shutdown()
    shutdown()

    assert not is_initialized()
    assert len(init(nodes=3).now()) == 3


def test_a_choice_that_makes_no_sense_is_not_kept() -> None:
    with pytest.raises(ConfigError):
        init(nodes=0)

    assert not is_initialized()


@pytest.mark.parametrize("address", ["auto", "ray://head:10001", "10.0.0.1:6379"])
def test_a_cluster_is_refused_for_now(address: str) -> None:
    with pytest.raises(ConfigError, match="clusters are not supported yet"):
        init(address=address)

    assert init(address="local").now()


def test_cpus_are_not_given_twice() -> None:
    with pytest.raises(ConfigError, match="CPU is set by num_cpus"):
        init(resources={"CPU": 2})


def test_a_forked_process_has_not_made_its_parents_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    init(nodes=2)
    parent = os.getpid()
    monkeypatch.setattr("os.getpid", lambda: parent + 1)

    assert not is_initialized()

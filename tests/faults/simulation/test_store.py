"""The simulated store is a store like any other where nothing goes wrong, and fails as told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from holdfast.errors import ObjectMissing, StoreBusy, StoreError, StoreFull
from holdfast.storage.base import Store
from holdfast.testing.suites.store import StoreSuite
from tests.simulation.store import SimStore, forget
from tests.simulation.story import Fault, draw
from tests.simulation.truth import Launch
from tests.simulation.world import World


def world_with(*faults: Fault) -> tuple[World, SimStore]:
    plain = draw(0)
    setting = replace(plain.setting, store_s=0.0)
    world = World(replace(plain, faults=faults, setting=setting), "(none)")
    store = SimStore(world)
    world.truth.store = store.inner
    return world, store


def fault(kind: str, at: int, length_s: float = 0.0) -> Fault:
    return Fault(kind=kind, when="operation", at=at, length_s=length_s)


class TestWithoutFaults(StoreSuite):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        _, store = world_with()
        yield store
        forget(store)


@pytest.mark.parametrize(
    ("kind", "error", "is_there"),
    [
        ("busy", StoreBusy, False),
        ("error", StoreFull, False),
        ("error after", StoreError, True),
        ("answer lost", StoreBusy, True),
    ],
)
def test_a_put_fails_as_told(kind: str, error: type[Exception], is_there: bool) -> None:
    world, store = world_with(fault(kind, 2))

    def play() -> None:
        store.put("a", b"1")
        with pytest.raises(error):
            store.put("b", b"2")
        store.put("c", b"3")

    world.stage.play("root", play)

    assert (store.stat("b") is not None) == is_there
    assert store.get("c").data == b"3"


@pytest.mark.parametrize(("kind", "is_there"), [("killed before", False), ("killed after", True)])
def test_a_driver_is_killed_as_told(kind: str, is_there: bool) -> None:
    world, store = world_with(fault(kind, 1))
    launch = Launch(1, world.stage)

    def drive() -> None:
        store.put("a", b"1")
        store.put("b", b"2")

    def play() -> None:
        world.stage.join(world.stage.start(launch.process, "driver", drive))

    world.stage.play("root", play)

    assert launch.was_killed
    assert (store.stat("a") is not None) == is_there
    with pytest.raises(ObjectMissing):
        store.get("b")


def test_a_read_never_fails_for_good() -> None:
    """Else a checkpoint that is whole would be set aside, which is no fault of anybody's."""
    world, store = world_with(fault("error", 1), fault("error after", 2))
    store.put("a", b"1")

    def play() -> None:
        for _ in range(2):
            with pytest.raises(StoreBusy):
                store.get("a")

    world.stage.play("root", play)


def test_a_slow_operation_takes_its_time() -> None:
    world, store = world_with(fault("slow", 1, length_s=8.0))

    def play() -> None:
        store.put("a", b"1")

    world.stage.play("root", play)

    assert world.stage.now == 8.0


def test_what_is_down_comes_back() -> None:
    world, store = world_with()
    world.store_is_down_until = 5.0

    def play() -> None:
        with pytest.raises(StoreBusy):
            store.put("a", b"1")
        world.stage.sleep(5.0)
        store.put("a", b"2")

    world.stage.play("root", play)

    assert store.get("a").data == b"2"

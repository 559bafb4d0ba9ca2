from __future__ import annotations

import logging
from typing import Any

import pytest

from holdfast.control.record.open_run import QUARANTINE
from holdfast.errors import FormatTooNew, LeaseLost
from holdfast.storage.memory import MemoryStore
from holdfast.storage.records import seal
from holdfast.tune.callback import Callback, CallbackList
from holdfast.tune.outputs.callback_states import KEY, SHARE, WRITE_EVERY_S, CallbackStates
from tests.clocks import FakeClock


class Counter(Callback):
    def __init__(self, count: int = 0) -> None:
        self.count = count

    def get_state(self) -> dict[str, Any] | None:
        return {"count": self.count} if self.count else None

    def set_state(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Lab:
    def __init__(self) -> None:
        self.store, self.clock, self.is_lost = MemoryStore(), FakeClock(), False

    def states(self, *callbacks: Callback) -> CallbackStates:
        return CallbackStates(CallbackList(callbacks), self.store, self.fence, self.clock)

    def fence(self) -> None:
        if self.is_lost:
            raise LeaseLost("another driver has it")

    @property
    def is_written(self) -> bool:
        return self.store.stat(KEY) is not None


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_a_state_comes_back_under_the_next_driver(lab: Lab) -> None:
    assert lab.states(Callback(), Counter(3)).flush()

    counter = Counter()
    lab.states(Callback(), counter).restore()

    assert counter.count == 3


def test_without_states_nothing_is_written(lab: Lab) -> None:
    states = lab.states(Callback(), Counter())
    states.restore()

    states.turned(is_over=True)

    assert states.flush() and states.settle()()
    assert not lab.is_written


def test_a_state_is_written_every_few_seconds_and_at_the_end(lab: Lab) -> None:
    counter = Counter(1)
    states = lab.states(counter)
    states.turned(is_over=False)
    assert not lab.is_written

    lab.clock.time += WRITE_EVERY_S
    states.turned(is_over=False)
    assert lab.is_written
    version = lab.store.get(KEY).version

    counter.count = 2
    states.turned(is_over=False)
    assert lab.store.get(KEY).version == version
    states.turned(is_over=True)
    assert lab.store.get(KEY).version != version


def test_a_state_that_takes_long_to_make_is_written_less_often(lab: Lab) -> None:
    class Slow(Counter):
        def get_state(self) -> dict[str, Any] | None:
            lab.clock.time += 5.0
            return super().get_state()

    counter = Slow(1)
    states = lab.states(counter)
    lab.clock.time += WRITE_EVERY_S
    states.turned(is_over=False)
    version, counter.count = lab.store.get(KEY).version, 2

    lab.clock.time += 5.0 / SHARE - 1.0
    states.turned(is_over=False)
    assert lab.store.get(KEY).version == version
    lab.clock.time += 1.0
    states.turned(is_over=False)
    assert lab.store.get(KEY).version != version


def test_a_state_that_has_not_changed_is_not_written_again(lab: Lab) -> None:
    counter = Counter(1)
    lab.states(counter).flush()
    version = lab.store.get(KEY).version

    states = lab.states(counter)
    states.restore()
    states.flush()

    assert lab.store.get(KEY).version == version


def test_a_driver_that_was_replaced_does_not_write(lab: Lab) -> None:
    lab.is_lost = True

    with pytest.raises(LeaseLost):
        lab.states(Counter(1)).flush()

    assert not lab.is_written


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b'{"format":1}\n',
        b'{"format":1,"callbacks":[],"~":"0000001e35d2963623f9e760"}\n',
    ],
)
def test_damaged_states_are_said_and_left_out(
    lab: Lab, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    lab.store.put(KEY, line)
    counter = Counter()

    with caplog.at_level(logging.WARNING):
        lab.states(counter).restore()

    assert counter.count == 0
    assert "callbacks begin without their states" in caplog.text
    assert lab.store.get(f"{QUARANTINE}/callbacks.json").data == line


@pytest.mark.parametrize(
    "states", ["none", [{"place": "first"}], [{"place": 0, "name": "Counter"}]]
)
def test_a_sealed_record_of_another_shape_is_damage_too(
    lab: Lab, states: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lab.store.put(KEY, seal({"format": 1, "callbacks": states}))

    lab.states(Counter()).restore()

    assert "callbacks begin without their states" in caplog.text


def test_states_of_a_newer_version_are_refused_and_stay(lab: Lab) -> None:
    line = seal({"format": 2, "callbacks": []})
    lab.store.put(KEY, line)

    with pytest.raises(FormatTooNew, match="format 2, this version reads up to 1"):
        lab.states(Counter()).restore()

    assert lab.store.get(KEY).data == line


class Odd(Counter):
    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def get_state(self) -> dict[str, Any] | None:
        state: dict[str, Any] = self.state
        return state


@pytest.mark.parametrize(
    "state", [[1], {"a": object()}, {"a": "\udc80"}, 7], ids=["list", "object", "half", "number"]
)
def test_a_state_that_cannot_be_stored_keeps_no_other_from_it(
    lab: Lab, state: Any, caplog: pytest.LogCaptureFixture
) -> None:
    states = lab.states(Odd(state), Counter(3))
    assert states.flush() and states.flush()
    assert caplog.text.count("the callback Odd failed in get_state") == 1

    counter = Counter()
    lab.states(Odd(None), counter).restore()

    assert counter.count == 3

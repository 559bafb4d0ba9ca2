"""A launch on another machine than the one that died, where the death cannot be proven."""

from __future__ import annotations

import pytest

from holdfast.errors import RunHeld
from holdfast.journal.lease import Lease, take_lease
from holdfast.storage.memory import MemoryStore
from tests.clocks import FakeClock
from tests.unit.journal.holders import LIFE_S, someone_elsewhere


def take(store: MemoryStore, clock: FakeClock, *, waits: bool = True) -> Lease:
    return take_lease(store, run="run", clock=clock, time_to_live_s=LIFE_S, waits=waits)


@pytest.mark.req("T-087")
def test_a_silent_driver_of_another_machine_is_replaced_once_its_lease_has_run_out() -> None:
    store, clock = MemoryStore(), FakeClock()
    take_lease(store, run="run", clock=clock, owner=someone_elsewhere(), time_to_live_s=LIFE_S)
    clock.time += 4
    with pytest.raises(RunHeld, match="gpu-3"):
        take(store, clock, waits=False)
    begun = clock.time

    take(store, clock)

    assert LIFE_S - 4 <= clock.time - begun < 2 * LIFE_S


def test_a_driver_of_another_machine_that_lives_is_waited_for_until_its_next_beat() -> None:
    store, clock = MemoryStore(), FakeClock()
    held = take_lease(
        store, run="run", clock=clock, owner=someone_elsewhere(), time_to_live_s=LIFE_S
    )
    begun = clock.time

    def beat(seconds: float) -> None:
        clock.time += 0.5
        held.renew(1)

    clock.meanwhile = beat

    with pytest.raises(RunHeld, match="gpu-3"):
        take(store, clock)

    assert clock.time - begun < LIFE_S / 2


def test_a_lease_of_a_clock_that_is_ahead_is_waited_for_no_longer_than_one_of_ours() -> None:
    store, clock, ahead = MemoryStore(), FakeClock(), FakeClock()
    ahead.time += 3600
    take_lease(store, run="run", clock=ahead, owner=someone_elsewhere(), time_to_live_s=LIFE_S)
    begun = clock.time

    take(store, clock)

    assert clock.time - begun < 3 * LIFE_S

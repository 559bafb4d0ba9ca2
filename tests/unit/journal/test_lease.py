from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from holdfast.errors import Conflict, LeaseLost, RunHeld, StoreBusy
from holdfast.journal.lease import (
    LEASES,
    Lease,
    lease_key,
    newest_epoch,
    read_lease,
    take_lease,
)
from holdfast.journal.owner import Owner, this_process
from holdfast.storage.base import ALWAYS, Condition, IfAbsent, Store
from holdfast.storage.memory import MemoryStore
from holdfast.storage.records import seal
from tests.clocks import FakeClock
from tests.unit.journal.holders import LIFE_S, someone_elsewhere
from tests.unit.journal.test_owner import another_process


def take(store: Store, clock: FakeClock, owner: Owner | None = None) -> Lease:
    return take_lease(store, run="run 'r'", clock=clock, owner=owner, time_to_live_s=LIFE_S)


# ---------------------------------------------------------------------------------- taking


def test_the_first_to_take_a_run_has_epoch_one(store: Store, clock: FakeClock) -> None:
    assert newest_epoch(store) == 0

    lease = take(store, clock)

    assert lease.epoch == newest_epoch(store) == 1
    assert read_lease(store, 1) == lease.record
    lease.check()


def test_every_taker_has_an_epoch_one_higher_than_the_last(store: Store, clock: FakeClock) -> None:
    for epoch in range(1, 12):
        lease = take(store, clock)
        lease.release(journal_next=epoch)

        assert lease.epoch == epoch


def test_a_run_that_was_given_back_can_be_taken_at_once(store: Store, clock: FakeClock) -> None:
    take(store, clock, someone_elsewhere()).release(journal_next=17)

    lease = take(store, clock)

    assert lease.epoch == 2
    assert lease.record.journal_next == 17
    assert lease.replaced is not None and lease.replaced.released
    assert clock.slept_s == []


def test_a_holder_elsewhere_is_named_with_host_process_and_age(
    store: Store, clock: FakeClock
) -> None:
    take(store, clock, someone_elsewhere("gpu-3", 4121))
    clock.time += 4

    with pytest.raises(RunHeld) as caught:
        take(store, clock)

    assert str(caught.value) == (
        "run 'r' is held by gpu-3 (pid 4121), lease renewed 4 s ago [HF302]\n"
        "  Try: stop it (kill 4121 on gpu-3 ends it in good order), or choose another name;"
        " if it is dead already, its lease expires in 26 s"
    )
    assert newest_epoch(store) == 1


def test_nobody_is_told_to_wait_for_the_lease_of_a_process_that_lives_here(
    store: Store, clock: FakeClock
) -> None:
    with another_process() as (_, other):
        take(store, clock, other)
        clock.time += 4

        with pytest.raises(RunHeld) as caught:
            take(store, clock)

    assert caught.value.message.endswith(f"(pid {other.pid}), lease renewed 4 s ago: it lives")
    assert caught.value.hint is not None
    assert f"kill {other.pid} on" in caught.value.hint
    assert "waiting helps only if it ends by itself" in caught.value.hint
    assert "runs out" not in caught.value.hint


def test_of_a_silent_holder_it_is_said_when_its_lease_runs_out(
    store: Store, clock: FakeClock
) -> None:
    with another_process() as (_, other):
        take(store, clock, other)
        clock.time += 20

        with pytest.raises(RunHeld) as caught:
            take(store, clock)

    assert caught.value.message.endswith("lease renewed 20 s ago: it is silent")
    assert caught.value.hint is not None and "again in 10 s" in caught.value.hint


def test_a_holder_that_was_seen_to_renew_its_lease_is_said_to_live(
    store: Store, clock: FakeClock
) -> None:
    """It had run out by our clock, which is ahead of the holder's; then it was renewed."""
    held = take(store, clock, someone_elsewhere())
    clock.time += LIFE_S + 1
    clock.meanwhile = lambda _: held.renew(1)

    with pytest.raises(RunHeld, match="it lives"):
        take(store, clock)


def test_a_process_cannot_take_a_run_twice(store: Store, clock: FakeClock) -> None:
    lease = take(store, clock)

    with pytest.raises(RunHeld, match=rf"\(pid {this_process().pid}\).* this very process"):
        take(store, clock)

    lease.check()


@pytest.mark.parametrize("takers", [2, 8])
def test_of_many_who_take_a_run_at_the_same_moment_one_wins(
    store: Store, clock: FakeClock, takers: int
) -> None:
    for epoch in range(1, 11):
        outcomes = race(store, clock, takers)

        winners = [outcome for outcome in outcomes if isinstance(outcome, Lease)]
        losers = [outcome for outcome in outcomes if isinstance(outcome, RunHeld)]
        assert [lease.epoch for lease in winners] == [epoch]
        name = str(winners[0].record.owner)
        assert all(name in held.message for held in losers), "a loser was told of somebody else"
        winners[0].release(journal_next=0)


def race(store: Store, clock: FakeClock, takers: int) -> list[Lease | RunHeld]:
    """Return what becomes of takers that all start at once."""
    start = threading.Barrier(takers)

    def run(taker: int) -> Lease | RunHeld:
        start.wait()
        try:
            return take(store, clock, someone_elsewhere("gpu", taker))
        except RunHeld as held:
            return held

    with ThreadPoolExecutor(takers) as pool:
        return list(pool.map(run, range(takers)))


class Contested(MemoryStore):
    """A store on which another driver is always faster."""

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        if key.startswith(LEASES) and condition == IfAbsent():
            raise Conflict(f"{key} exists already", key=key)
        return super().put(key, data, condition)


def test_a_taker_who_is_always_too_late_gives_up_with_a_hint(clock: FakeClock) -> None:
    with pytest.raises(RunHeld, match="is taken by several drivers at once") as caught:
        take(Contested(), clock)

    assert caught.value.hint == "make sure that only one driver is started for it"


class Noisy(MemoryStore):
    """A store whose first put of a lease succeeds, but is reported as failed."""

    is_noisy = True

    def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
        version = super().put(key, data, condition)
        if self.is_noisy:
            self.is_noisy = False
            raise StoreBusy(f"cannot write {key}: the line is noisy", key=key)
        return version


def test_a_taker_that_was_told_it_failed_does_not_lock_itself_out(clock: FakeClock) -> None:
    store = Noisy()
    with pytest.raises(StoreBusy):
        take(store, clock)

    assert take(store, clock).epoch == 2


class Unfenced(MemoryStore):
    fences = False


def test_a_store_that_cannot_fence_is_warned_of(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    take(Unfenced(), clock)

    assert "cannot ensure that only one driver writes" in caplog.text


# ---------------------------------------------------------------------------------- replacing


@pytest.mark.parametrize(("age_s", "is_free"), [(0.0, False), (29.9, False), (30.0, True)])
def test_a_holder_on_this_machine_is_replaced_once_its_lease_has_run_out(
    store: Store, clock: FakeClock, age_s: float, is_free: bool
) -> None:
    take(store, clock)
    clock.time += age_s

    if is_free:
        assert take(store, clock).epoch == 2
    else:
        with pytest.raises(RunHeld):
            take(store, clock)
    assert clock.slept_s == []


def test_a_lease_that_is_renewed_does_not_run_out(store: Store, clock: FakeClock) -> None:
    lease = take(store, clock)
    for beat in range(10):
        clock.time += 10
        lease.renew(journal_next=beat)

    with pytest.raises(RunHeld, match="renewed 0 s ago"):
        take(store, clock)
    assert read_lease(store, 1) == lease.record
    assert lease.record.journal_next == 9


def test_a_holder_that_was_killed_is_replaced_at_once(store: Store, clock: FakeClock) -> None:
    with another_process() as (process, owner):
        take(store, clock, owner)
        with pytest.raises(RunHeld, match=rf"\(pid {process.pid}\)"):
            take(store, clock)
        process.kill()
        process.wait()

        assert take(store, clock).epoch == 2
    assert clock.slept_s == []


def test_a_process_that_has_the_number_of_a_dead_holder_is_not_the_holder(
    store: Store, clock: FakeClock
) -> None:
    me = this_process()
    take(store, clock, replace(me, started=me.started - 1))

    assert take(store, clock).epoch == 2


def test_a_zombie_learns_who_has_replaced_it(store: Store, clock: FakeClock) -> None:
    """It never died, its lease ran out while it was stopped, and now it is woken."""
    zombie = take(store, clock)
    clock.time += LIFE_S
    take(store, clock, someone_elsewhere("gpu-5", 99))

    for act in (zombie.check, lambda: zombie.renew(journal_next=7)):
        with pytest.raises(LeaseLost) as caught:
            act()

        assert caught.value.message == (
            "run 'r' was taken over by gpu-5 (pid 99); epoch 1 of this driver is over"
        )


def test_a_zombie_cannot_change_its_successors_lease(store: Store, clock: FakeClock) -> None:
    zombie = take(store, clock)
    clock.time += LIFE_S
    successor = take(store, clock)
    before = store.get(lease_key(2)).data
    with pytest.raises(LeaseLost):
        zombie.renew(journal_next=7)
    zombie.release(journal_next=7)

    assert store.get(lease_key(2)).data == before
    successor.check()
    with pytest.raises(RunHeld):
        take(store, clock)


def test_a_zombie_of_long_ago_is_over_too(store: Store, clock: FakeClock) -> None:
    zombie = take(store, clock)
    for _ in range(3):
        clock.time += LIFE_S
        take(store, clock)

    with pytest.raises(LeaseLost):
        zombie.check()


@pytest.mark.parametrize(
    "successor", [b"garbage", seal({"format": 99}) + b"\n", b""], ids=["garbage", "newer", "empty"]
)
def test_a_zombie_is_over_even_if_its_successors_lease_cannot_be_read(
    store: Store, clock: FakeClock, successor: bytes
) -> None:
    """A newer version of Holdfast may have taken over, or the file may be damaged."""
    zombie = take(store, clock)
    store.put(lease_key(2), successor)

    with pytest.raises(LeaseLost, match="run 'r' was taken over; epoch 1"):
        zombie.check()


# ---------------------------------------------------------------------------------- clocks


def test_a_holder_elsewhere_whose_clock_is_behind_is_left_alone_while_it_renews(
    store: Store, clock: FakeClock
) -> None:
    """Its lease looks as if it had run out an hour ago, but it is being renewed."""
    behind = FakeClock(clock.time - 3600)
    holder = take(store, behind, someone_elsewhere())

    def renew(seconds: float) -> None:
        behind.time += seconds
        holder.renew(journal_next=3)

    clock.meanwhile = renew

    with pytest.raises(RunHeld, match=r"gpu-3 \(pid 4121\)"):
        take(store, clock)
    holder.check()


def test_a_holder_elsewhere_with_the_name_of_this_machine_is_left_alone_while_it_renews(
    store: Store, clock: FakeClock
) -> None:
    """Containers are often all called the same; only the kernel tells whose clock it is."""
    behind = FakeClock(clock.time - 3600)
    holder = take(store, behind, someone_elsewhere(host=this_process().host))

    def renew(seconds: float) -> None:
        behind.time += seconds
        holder.renew(journal_next=3)

    clock.meanwhile = renew

    with pytest.raises(RunHeld):
        take(store, clock)
    holder.check()


def test_a_holder_elsewhere_whose_lease_ran_out_is_watched_for_more_than_a_beat_and_replaced(
    store: Store, clock: FakeClock
) -> None:
    take(store, clock, someone_elsewhere())
    clock.time += LIFE_S

    lease = take(store, clock)

    assert lease.epoch == 2
    assert sum(clock.slept_s) > LIFE_S / 3, "a beat that is a moment late must not cost the run"

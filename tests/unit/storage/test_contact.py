"""Storage that does not answer: which calls give up, which wait, and what is logged."""

from __future__ import annotations

import threading

import pytest

from holdfast.errors import ConfigError, EndpointWrong, ObjectMissing, StoreBusy
from holdfast.storage import contact
from holdfast.storage.base import Blob
from holdfast.storage.contact import FRESH_S, WARNINGS_APART_S, Contact, never_give_up
from holdfast.storage.locate import START_S, remote_policy
from holdfast.storage.memory import MemoryStore
from holdfast.storage.prefix import child
from holdfast.storage.retry import Retrying, RetryPolicy, begin_run, end_run, within
from tests.clocks import FakeClock
from tests.unit.storage.test_retry import Flaky

LIMIT_S = 12.0


def opened(
    store: MemoryStore, start_s: float = LIMIT_S, clock: FakeClock | None = None
) -> Retrying:
    policy = RetryPolicy(deadline_s=None, start_s=start_s)
    return Retrying(store, policy, clock=clock or FakeClock(1_000.0), draw=lambda: 0.5)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


# ---------------------------------------------------------------------- before a run


def test_who_begins_gives_up_within_the_limit_and_is_told_one_line_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock(1_000.0)
    store = opened(Flaky(faults=1_000), clock=clock)
    begun = clock.time

    with pytest.raises(StoreBusy) as caught:
        store.get("a")

    assert LIMIT_S / 2 < clock.time - begun <= LIMIT_S
    assert warnings(caplog) == [
        "storage does not answer: cannot reach it: 503; retrying for 12 s",
    ]
    assert "cannot reach it: 503 (tried" in caught.value.message
    assert "HOLDFAST_STORAGE_TIMEOUT_S=60" in (caught.value.hint or "")


@pytest.mark.parametrize("luck", [0.01, 0.5, 0.99])
def test_the_line_comes_before_three_seconds_have_passed(luck: float) -> None:
    clock = FakeClock(1_000.0)
    told_at: list[float] = []

    class Noting(Contact):
        def _warn(self, reason: str, limit_s: float | None) -> None:
            told_at.append(clock.time - 1_000.0)

    store = Retrying(
        Flaky(faults=10_000),
        RetryPolicy(deadline_s=None, start_s=LIMIT_S),
        clock=clock,
        draw=lambda: luck,
        contact=Noting(clock),
    )
    with pytest.raises(StoreBusy):
        store.stat("a")

    [after_s] = told_at
    assert after_s <= 3.0


def test_a_fault_that_passes_soon_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ObjectMissing):
        opened(Flaky(faults=3)).get("a")

    assert warnings(caplog) == []


class NoHost(MemoryStore):
    """A host that does not exist."""

    def __init__(self, faults: int) -> None:
        super().__init__()
        self.faults = faults

    def probe(self, *, writable: bool) -> None:
        self.get("a")

    def get(self, key: str) -> Blob:
        if self.faults:
            self.faults -= 1
            raise EndpointWrong("there is no host of that name", hint="check the endpoint")
        return Blob(b"1", "v")


def test_a_host_that_does_not_exist_is_not_waited_for() -> None:
    clock = FakeClock(1_000.0)
    store = opened(NoHost(10), clock=clock)

    with pytest.raises(EndpointWrong) as caught:
        store.get("a")

    assert clock.slept_s == []
    assert caught.value.hint == "check the endpoint"


def test_in_a_run_the_same_host_is_waited_for() -> None:
    store = opened(NoHost(10))
    begin_run(store)

    assert store.get("a").data == b"1"


class Silent(MemoryStore):
    """A backend that waits for an answer that does not come, until the test has had enough."""

    def __init__(self) -> None:
        super().__init__()
        self.enough = threading.Event()

    def probe(self, *, writable: bool) -> None:
        self.enough.wait()


def test_a_backend_that_waits_by_itself_is_given_up_too(caplog: pytest.LogCaptureFixture) -> None:
    silent = Silent()
    store = opened(silent, start_s=0.2)
    try:
        with pytest.raises(StoreBusy, match=r"memory://.* does not answer \(waited for 0.2 s\)"):
            store.get("a")
        with pytest.raises(StoreBusy):
            list(store.entries())
        with pytest.raises(StoreBusy):
            next(store.stream("a"))
        with pytest.raises(StoreBusy):
            store.put("a", b"1")
    finally:
        silent.enough.set()

    assert warnings(caplog) == [
        f"storage does not answer: no answer from {store.url} yet; retrying for 0.2 s",
    ]
    assert list(silent.entries()) == []


def test_what_takes_long_is_not_cut_short_where_somebody_answers() -> None:
    clock = FakeClock(1_000.0)

    class Slow(MemoryStore):
        def get(self, key: str) -> Blob:
            clock.time += 10 * LIMIT_S
            return super().get(key)

    slow = Slow()
    slow.put("a", b"1")

    assert opened(slow, clock=clock).get("a").data == b"1"


def test_who_has_just_answered_is_not_asked_again_whether_he_is_there() -> None:
    clock = FakeClock(1_000.0)
    flaky = Flaky()
    store = opened(flaky, clock=clock)

    store.stat("a")
    store.stat("a")
    child(store, "below").stat("a")
    assert flaky.asked == 3 + 1

    clock.time += FRESH_S
    store.stat("a")
    assert flaky.asked == 5 + 1


# ---------------------------------------------------------------------- in a run


def test_in_a_run_nobody_gives_up_and_two_lines_tell_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock(1_000.0)
    flaky = Flaky(faults=5_000)
    store = opened(flaky, clock=clock)
    begin_run(store, lambda: "training goes on; nothing after checkpoint_000007 is durable")

    store.put("a", b"1")

    assert clock.time > 1_000.0 + 3 * 3600
    begins, ends = warnings(caplog)
    assert begins == (
        "storage does not answer: cannot reach it: 503; training goes on; nothing after"
        " checkpoint_000007 is durable; retrying until it does"
    )
    assert ends.startswith("storage answers again, after ")
    assert flaky.get("a").data == b"1"


def test_a_short_fault_in_a_run_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    store = opened(Flaky(faults=3))
    begin_run(store)

    store.put("a", b"1")

    assert warnings(caplog) == []


def test_many_calls_that_wait_are_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(1_000.0)
    place, first, second = Contact(clock), object(), object()
    place.begin_run()
    busy = StoreBusy("503")
    for moment in range(20):
        clock.time += 1
        place.failed(first, busy, moment, None)
        place.failed(second, busy, moment, None)
    place.settled(first)
    assert len(warnings(caplog)) == 1

    place.settled(second)

    assert warnings(caplog)[1:] == ["storage answers again, after 19 s"]


def test_outages_that_come_one_after_the_other_are_not_all_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock(1_000.0)
    place = Contact(clock)
    place.begin_run()
    for _ in range(100):
        call = object()
        place.failed(call, StoreBusy("503"), 5.0, None)
        clock.time += 5
        place.settled(call)

    assert len(warnings(caplog)) == 2 * -(-500 // int(WARNINGS_APART_S))


def test_after_a_run_nobody_waits_long() -> None:
    clock = FakeClock(1_000.0)
    store = opened(Flaky(faults=1_000), clock=clock)
    begin_run(store)
    end_run(child(store, "below"))  # all that came from it share it

    with pytest.raises(StoreBusy):
        store.put("a", b"1")

    assert clock.time <= 1_000.0 + LIMIT_S


def test_a_call_that_waits_ends_when_its_run_does() -> None:
    clock = FakeClock(1_000.0)
    store = opened(Flaky(faults=1_000_000), clock=clock)
    begin_run(store)
    sleep, left_at = clock.sleep, 1_000.0 + 1_000

    def leave_then(seconds: float) -> None:
        sleep(seconds)
        if clock.time >= left_at and store.contact.is_in_run:
            end_run(store, 2.0)

    clock.sleep = leave_then  # type: ignore[method-assign]

    with pytest.raises(StoreBusy):
        store.put("a", b"1")

    assert left_at <= clock.time <= left_at + 2
    began = clock.time
    with pytest.raises(StoreBusy):
        store.put("a", b"1")
    assert clock.time <= began + 2.0


def test_a_part_of_a_run_may_have_a_limit_of_its_own() -> None:
    store = Retrying(Flaky(faults=1_000_000), RetryPolicy(deadline_s=None, wait_first_s=0.0))
    begin_run(store)

    with pytest.raises(StoreBusy):
        within(store, 0.0).stat("a")


def test_in_a_worker_all_stores_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact, "_process_is_in_run", False)
    never_give_up()

    opened(Flaky(faults=1_000)).put("a", b"1")


# ---------------------------------------------------------------------- the setting


def test_the_limit_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_STORAGE_TIMEOUT_S", raising=False)
    assert remote_policy().start_s == START_S == LIMIT_S
    monkeypatch.setenv("HOLDFAST_STORAGE_TIMEOUT_S", "90.5")
    assert remote_policy().start_s == 90.5


@pytest.mark.parametrize("value", ["soon", "0", "-3", "nan", "inf"])
def test_a_limit_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HOLDFAST_STORAGE_TIMEOUT_S", value)

    with pytest.raises(ConfigError, match=f"HOLDFAST_STORAGE_TIMEOUT_S={value}"):
        remote_policy()

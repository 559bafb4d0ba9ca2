"""A journal whose records are believed at once, when one of them cannot be written."""

from __future__ import annotations

import sys
import threading

import pytest

from holdfast.errors import StoreError
from holdfast.storage.base import Store
from tests.clocks import FakeClock
from tests.patience import PATIENCE_S
from tests.unit.journal.holders import Faults, Writer, at_rest, take, texts
from tests.unit.journal.test_interrupts import interrupt_at


def believe(writer: Writer, *texts: str) -> None:
    for text in texts:
        writer.journal.append("note", {"text": text}, believed=True)


def test_nothing_follows_a_record_that_was_believed_and_refused(
    store: Store, clock: FakeClock, faults: Faults
) -> None:
    writer = take(store, clock)
    believe(writer, "a")
    writer.journal.flush()
    faults.fails = {faults.writes + 1}
    believe(writer, "b")
    with pytest.raises(StoreError, match=r"noisy|Input/output"):
        writer.journal.flush()

    for act in (lambda: believe(writer, "c"), lambda: writer.note("d"), writer.journal.flush):
        with pytest.raises(StoreError, match=r"noisy|Input/output"):
            act()

    assert at_rest(store)[:1] == ["a"]
    assert set(at_rest(store)) <= {"a", "b"}, "what was refused may be at rest, nothing behind it"
    assert texts(take(store, clock).replayed) == at_rest(store)


def test_what_is_appended_while_a_write_fails_is_refused_with_it(
    store: Store, clock: FakeClock, faults: Faults
) -> None:
    """This once lost trials: later records were written behind the gap when closing."""
    writer = take(store, clock)
    writer.note("opens the segment")
    faults.fails = {faults.writes + 1}
    faults.gate = threading.Event()
    believe(writer, "a")
    raised: list[Exception] = []

    def flush() -> None:
        try:
            writer.journal.flush()
        except StoreError as error:
            raised.append(error)

    writing = threading.Thread(target=flush)
    writing.start()
    assert faults.entered.wait(PATIENCE_S)
    believe(writer, "b", "c")
    faults.gate.set()
    writing.join()

    assert raised == [writer.journal.failure]
    with pytest.raises(StoreError):
        writer.note("run_closed")
    with pytest.raises(StoreError):
        writer.journal.close()
    assert set(at_rest(store)) <= {"opens the segment", "a"}


def test_what_nobody_believed_costs_nothing_but_itself_and_what_is_behind_it(
    store: Store, clock: FakeClock, faults: Faults
) -> None:
    writer = take(store, clock)
    writer.note("a")
    faults.fails = {faults.writes + 1}
    tickets = [writer.journal.append("note", {"text": text}) for text in "bc"]
    for ticket in tickets:
        with pytest.raises(StoreError):
            ticket.wait()

    writer.note("d")

    assert at_rest(store) == ["a", "d"]


def test_ctrl_c_at_any_moment_of_a_write_leaves_no_hole(store: Store, clock: FakeClock) -> None:
    """Whether it continues or is closed: everything up to some moment is stored."""
    before, nth, is_interrupted, closed = sys.gettrace(), 0, True, 0
    while is_interrupted:
        nth += 1
        writer, is_interrupted = take(store, clock), False
        start = len(writer.replayed)
        believe(writer, *(f"{nth}-{number}" for number in range(3)))
        sys.settrace(interrupt_at(nth))
        try:
            writer.journal.flush()
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            sys.settrace(before)
        try:
            believe(writer, f"{nth}-3")
            writer.journal.flush()
        except StoreError as error:
            closed += "KeyboardInterrupt" in error.message
        records = take(store, clock).replayed
        stored = texts(records)[start:]

        assert stored == [f"{nth}-{number}" for number in range(len(stored))]
        assert len(stored) == 4 or writer.journal.failure is not None

    assert nth > 20
    assert closed > 5

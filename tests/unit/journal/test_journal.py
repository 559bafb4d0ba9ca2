"""The journal as its one writer uses it: group commit, rotation, failures, takeover."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import ConfigError, LeaseLost, StoreError
from holdfast.journal.replay import Replay
from holdfast.journal.segments import JOURNAL
from holdfast.storage.base import Store
from holdfast.storage.memory import MemoryStore
from tests.clocks import FakeClock
from tests.patience import PATIENCE_S
from tests.unit.journal.holders import (
    RUN_ID,
    Faults,
    at_rest,
    is_accepted,
    segment_keys,
    take,
    texts,
)

TINY = 1  # every record fills its segment


# ---------------------------------------------------------------------------------- writing


def test_what_was_recorded_is_there_for_the_next_driver_in_order(
    store: Store, clock: FakeClock
) -> None:
    numbers = take(store, clock).note("a", "b", "c")

    again = take(store, clock)

    assert numbers == [1, 2, 3]
    assert [(record.seq, record.data["text"]) for record in again.replayed] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
    ]
    assert again.note("d") == [4]


def test_a_record_keeps_its_kind_its_time_and_any_data(store: Store, clock: FakeClock) -> None:
    data = {"loss": -math.inf, "$mark": {"$float": "x"}, "deep": [{"größe": None}]}
    writer = take(store, clock)
    clock.time = 1_700_000_100.5
    writer.journal.record("scored", data)

    (record,) = take(store, clock).replayed

    assert (record.kind, record.time, record.data) == ("scored", 1_700_000_100.5, data)


def test_a_run_without_records_has_an_empty_journal(store: Store, clock: FakeClock) -> None:
    assert take(store, clock).replayed == []
    assert list(store.entries(JOURNAL)) == []


def test_an_appended_record_is_written_when_anybody_waits(store: Store, clock: FakeClock) -> None:
    writer = take(store, clock)
    ticket = writer.journal.append("note", {"text": "a"})

    writer.note("b")

    assert ticket.seq == 1
    assert at_rest(store) == ["a", "b"]


@pytest.mark.parametrize("finish", ["flush", "close"])
def test_an_appended_record_is_written_at_the_latest_when_the_journal_is_closed(
    store: Store, clock: FakeClock, finish: str
) -> None:
    writer = take(store, clock)
    writer.journal.append("note", {"text": "a"})
    writer.journal.append("note", {"text": "b"})

    getattr(writer.journal, finish)()

    assert at_rest(store) == ["a", "b"]


def test_a_journal_can_be_closed_twice_and_written_after(store: Store, clock: FakeClock) -> None:
    writer = take(store, clock)
    writer.note("a")
    writer.journal.close()
    writer.journal.close()
    writer.note("b")

    assert at_rest(store) == ["a", "b"]


def test_records_of_many_threads_are_all_durable_and_numbered_without_gaps(
    store: Store, clock: FakeClock
) -> None:
    writer = take(store, clock, segment_bytes=2000)

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda i: writer.note(str(i))[0], range(200)))

    assert sorted(numbers) == list(range(1, 201))
    by_number = dict(zip(numbers, map(str, range(200)), strict=True))
    assert at_rest(store) == [by_number[number] for number in range(1, 201)]


def test_all_that_wait_share_one_write(store: Store, clock: FakeClock, faults: Faults) -> None:
    writer = take(store, clock)
    writer.note("opens the segment")
    faults.gate = threading.Event()
    first = threading.Thread(target=writer.note, args=("a",))
    first.start()
    assert faults.entered.wait(PATIENCE_S)
    tickets = [writer.journal.append("note", {"text": str(i)}) for i in range(10)]
    waiting = [threading.Thread(target=ticket.wait) for ticket in tickets]
    for thread in waiting:
        thread.start()
    before = faults.writes

    faults.gate.set()
    for thread in (first, *waiting):
        thread.join()

    assert [ticket.seq for ticket in tickets] == list(range(3, 13))
    assert faults.writes == before + 1


def test_a_flush_waits_for_what_another_thread_is_writing(
    store: Store, clock: FakeClock, faults: Faults
) -> None:
    writer = take(store, clock)
    faults.gate = threading.Event()
    ticket = writer.journal.append("note", {"text": "a"})
    writing = threading.Thread(target=ticket.wait)
    writing.start()
    assert faults.entered.wait(PATIENCE_S)
    seen: list[int | None] = []

    def flush() -> None:
        writer.journal.flush()
        seen.append(ticket.seq)

    flushing = threading.Thread(target=flush)
    flushing.start()
    flushing.join(0.2)  # long enough for a flush that does not wait, which is the mistake
    faults.gate.set()
    writing.join()
    flushing.join()

    assert seen == [1]


def test_a_record_that_cannot_be_kept_is_refused_at_once_and_alone(
    store: Store, clock: FakeClock
) -> None:
    writer = take(store, clock)
    writer.journal.append("note", {"text": "a"})
    for bad in ({1, 2}, chr(0xD800), 10**5000):
        with pytest.raises(ConfigError, match="cannot store this as JSON"):
            writer.journal.append("note", {"text": bad, "beside": math.nan})
    writer.journal.append("note", {"text": "b"})

    writer.journal.flush()

    assert at_rest(store) == ["a", "b"]


# ---------------------------------------------------------------------------------- rotation


def test_a_full_segment_is_followed_by_another_and_all_are_read(
    store: Store, clock: FakeClock
) -> None:
    writer = take(store, clock, segment_bytes=TINY)
    writer.note("a", "b", "c")

    assert segment_keys(store) == [
        ".holdfast/journal/000001-000000.jsonl",
        ".holdfast/journal/000001-000001.jsonl",
        ".holdfast/journal/000001-000002.jsonl",
    ]
    assert at_rest(store) == ["a", "b", "c"]


def test_a_segment_ends_when_that_is_asked_for_and_can_be_compacted_then(
    store: Store, clock: FakeClock
) -> None:
    writer = take(store, clock)
    writer.note("a", "b")
    writer.journal.end_segment()
    writer.note("c")  # the last one in it
    assert len(segment_keys(store)) == 1 or store.local is None

    writer.journal.compact(lambda records: [(record.kind, record.data) for record in records][-1:])
    writer.note("d")

    assert texts(take(store, clock).replayed) == ["c", "d"]


def test_a_new_driver_writes_to_segments_of_its_own_epoch(store: Store, clock: FakeClock) -> None:
    take(store, clock).note("a")
    take(store, clock).note("b")

    assert segment_keys(store) == [
        ".holdfast/journal/000001-000000.jsonl",
        ".holdfast/journal/000002-000000.jsonl",
    ]
    assert at_rest(store) == ["a", "b"]


# ---------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("segment_bytes", [TINY, 1 << 20])
@pytest.mark.parametrize("failing", range(1, 10))
def test_a_write_that_fails_is_refused_and_never_comes_back(
    store: Store, clock: FakeClock, faults: Faults, failing: int, segment_bytes: int
) -> None:
    """The bytes are stored when the failure is reported: the worst a store can do."""
    writer = take(store, clock, segment_bytes=segment_bytes)
    faults.fails = {failing}
    accepted = [text for text in "abcd" if is_accepted(writer, text)]
    faults.fails.clear()
    writer.note("after")

    again = take(store, clock)

    assert at_rest(store) == [*accepted, "after"]
    assert texts(again.replayed) == [*accepted, "after"]
    assert again.journal.damages == []


@pytest.mark.parametrize("blind", range(1, 5))
def test_a_record_that_could_not_be_fenced_is_refused_and_costs_no_other(
    store: Store, clock: FakeClock, faults: Faults, blind: int
) -> None:
    """The record is stored, but the check whether the epoch is over failed."""
    writer = take(store, clock)
    faults.looks = 0
    faults.blind = {blind}
    accepted = [text for text in "abcd" if is_accepted(writer, text)]
    writer.note("after")

    again = take(store, clock)

    assert len(accepted) == 3
    assert texts(again.replayed) == [*accepted, "after"]
    assert again.journal.damages == []


def test_a_failure_is_told_to_everybody_who_waits_for_the_same_write(
    store: Store, clock: FakeClock, faults: Faults
) -> None:
    writer = take(store, clock)
    writer.note("opens the segment")
    faults.fails = {faults.writes + 1}
    tickets = [writer.journal.append("note", {"text": str(i)}) for i in range(3)]

    for ticket in tickets:
        with pytest.raises(StoreError):
            ticket.wait()

    writer.note("after")
    assert at_rest(store) == ["opens the segment", "after"]


def test_an_interrupt_in_the_middle_of_a_write_leaves_the_journal_usable(
    store: Store, clock: FakeClock, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = take(store, clock)
    writer.note("a")
    with monkeypatch.context() as patch:
        patch.setattr(faults, "after_write", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            writer.note("b")

    writer.note("c")

    assert at_rest(store) == ["a", "c"]


def _interrupt(_: str) -> None:
    raise KeyboardInterrupt


# ---------------------------------------------------------------------------------- takeover


def test_what_a_replaced_writer_appends_is_refused_and_does_not_count(
    store: Store, clock: FakeClock
) -> None:
    old = take(store, clock)
    old.note("a")
    new = take(store, clock)
    new.note("b")

    for _ in range(2):
        with pytest.raises(LeaseLost, match="was taken over"):
            old.note("late")
    new.note("c")

    assert at_rest(store) == ["a", "b", "c"]
    assert texts(take(store, clock).replayed) == ["a", "b", "c"]


@pytest.mark.parametrize("segment_bytes", [TINY, 1 << 20])
def test_a_replaced_writer_that_opens_new_segments_is_ignored_too(
    store: Store, clock: FakeClock, segment_bytes: int
) -> None:
    old = take(store, clock, segment_bytes=segment_bytes)
    old.note("a")
    new = take(store, clock)
    for text in ("late", "later"):
        with pytest.raises(LeaseLost):
            old.note(text)
    new.note("b")
    with pytest.raises(LeaseLost):
        old.note("latest")

    assert at_rest(store) == ["a", "b"]


def test_what_was_written_before_the_takeover_counts_even_if_nobody_was_told(
    store: Store, clock: FakeClock, faults: Faults
) -> None:
    """The new driver reads it, so that both agree: it happened, and its writer is gone."""
    old = take(store, clock)
    faults.gate = threading.Event()
    outcome: list[str] = []

    def write() -> None:
        try:
            old.note("a", "b")
            outcome.append("told")
        except LeaseLost:
            outcome.append("refused")

    writing = threading.Thread(target=write)
    writing.start()
    assert faults.entered.wait(PATIENCE_S)
    gate, faults.gate = faults.gate, None
    new = take(store, clock)
    gate.set()
    writing.join()
    new.note("c")

    assert outcome == ["refused"]
    assert at_rest(store) == [*texts(new.replayed), "c"]
    assert "b" not in at_rest(store)


def test_a_segment_that_somebody_else_has_put_already_ends_the_writer(clock: FakeClock) -> None:
    """Only a store that let two drivers have one epoch can bring that about."""
    store = MemoryStore()
    writer = take(store, clock)
    store.put(".holdfast/journal/000001-000000.jsonl", b"of another driver")

    with pytest.raises(LeaseLost, match="segment 000001-000000 of the journal exists already"):
        writer.note("a")


def test_segments_of_a_replaced_writer_are_known_to_be_of_no_use(
    store: Store, clock: FakeClock
) -> None:
    old = take(store, clock, segment_bytes=TINY)
    old.note("a")
    new = take(store, clock)
    new.note("b")
    with pytest.raises(LeaseLost):
        old.note("late")

    # On a disk it checks before it creates a file; an object is created with its contents.
    late = [] if store.local else [".holdfast/journal/000001-000001.jsonl"]
    assert Replay(store, RUN_ID).chain.stale == late

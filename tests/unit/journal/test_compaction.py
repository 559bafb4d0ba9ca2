"""Compaction: a snapshot replaces finished segments, through crashes, failures and readers."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.errors import LeaseLost
from holdfast.journal.journal import COMPACT_SEGMENTS
from holdfast.storage.base import Store
from tests.clocks import FakeClock
from tests.unit.journal.holders import (
    Faults,
    FaultyLocal,
    at_rest,
    is_accepted,
    segment_keys,
    summarise,
    take,
    texts,
)

TINY = 1  # every record fills its segment


def test_compaction_keeps_the_state_and_the_numbers_and_drops_the_segments(
    store: Store, clock: FakeClock
) -> None:
    writer = take(store, clock, segment_bytes=TINY)
    writer.note("a", "b", "c")

    writer.journal.compact(summarise)

    assert segment_keys(store) == [".holdfast/journal/000001-000002.snapshot.jsonl"]
    assert at_rest(store) == ["a", "b", "c"]
    assert writer.note("d") == [4]
    again = take(store, clock)
    assert texts(again.replayed) == ["a", "b", "c", "d"]
    assert again.note("e") == [5]


def test_compaction_leaves_the_segment_that_is_being_written(
    tmp_path: Path, clock: FakeClock
) -> None:
    store = FaultyLocal(tmp_path / "run", Faults())
    writer = take(store, clock)
    writer.note("a")
    writer.journal.compact(summarise)

    assert segment_keys(store) == [".holdfast/journal/000001-000000.jsonl"]
    assert at_rest(store) == ["a"]


def test_a_journal_can_be_compacted_again_and_again(store: Store, clock: FakeClock) -> None:
    writer = take(store, clock, segment_bytes=TINY)
    for text in "abcd":
        writer.note(text)
        writer.journal.compact(summarise)
        writer.journal.compact(summarise)

    assert segment_keys(store) == [".holdfast/journal/000001-000003.snapshot.jsonl"]
    assert at_rest(store) == ["a", "b", "c", "d"]


def test_to_compact_an_empty_journal_does_nothing(store: Store, clock: FakeClock) -> None:
    take(store, clock).journal.compact(summarise)

    assert segment_keys(store) == []


def test_the_next_driver_can_compact_what_the_last_one_wrote(
    store: Store, clock: FakeClock
) -> None:
    take(store, clock, segment_bytes=TINY).note("a", "b")
    writer = take(store, clock, segment_bytes=TINY)
    writer.journal.compact(summarise)
    writer.note("c")
    writer.journal.compact(summarise)

    assert segment_keys(store) == [".holdfast/journal/000002-000000.snapshot.jsonl"]
    assert at_rest(store) == ["a", "b", "c"]


def test_compaction_is_wanted_once_the_chain_is_long_and_not_after(
    store: Store, clock: FakeClock
) -> None:
    writer = take(store, clock, segment_bytes=TINY)
    for number in range(COMPACT_SEGMENTS):
        writer.note(str(number))
    early = writer.journal.wants_compaction()
    writer.note("one more")

    assert not early
    assert writer.journal.wants_compaction()
    writer.journal.compact(summarise)
    assert not writer.journal.wants_compaction()


def test_a_long_chain_is_known_to_be_long_after_it_was_reopened(
    store: Store, clock: FakeClock
) -> None:
    writer = take(store, clock, segment_bytes=TINY)
    for number in range(COMPACT_SEGMENTS + 1):
        writer.note(str(number))

    assert take(store, clock).journal.wants_compaction()


class PowerCut(BaseException):
    """Not an Exception, so that nothing in the code under test survives it."""


@pytest.mark.parametrize("deletions", range(5))
def test_a_crash_anywhere_in_compaction_leaves_the_same_state(
    store: Store, clock: FakeClock, deletions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut before deletion 0, 1, 2 …; the last case has nothing left to cut."""
    writer = take(store, clock, segment_bytes=TINY)
    writer.note("a", "b")
    writer.journal.compact(summarise)
    writer.note("c", "d", "e")
    counter = itertools.count()
    delete = store.delete

    def delete_or_die(key: str) -> None:
        if next(counter) == deletions:
            raise PowerCut
        delete(key)

    with monkeypatch.context() as patch:
        patch.setattr(store, "delete", delete_or_die)
        try:
            writer.journal.compact(summarise)
        except PowerCut:
            assert len(segment_keys(store)) == 5 - deletions
        else:
            assert deletions == 4

    assert at_rest(store) == ["a", "b", "c", "d", "e"]
    again = take(store, clock, segment_bytes=TINY)
    assert texts(again.replayed) == ["a", "b", "c", "d", "e"]
    assert again.note("f") == [6]
    again.journal.compact(summarise)
    assert at_rest(store) == ["a", "b", "c", "d", "e", "f"]


def test_compaction_beside_threads_that_append_loses_nothing(
    store: Store, clock: FakeClock
) -> None:
    writer = take(store, clock, segment_bytes=300)
    done = threading.Event()
    compactions = 0

    def append(thread: int) -> None:
        for number in range(60):
            writer.note(f"{thread}-{number}")

    def appending() -> None:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(append, range(3)))
        done.set()

    threading.Thread(target=appending).start()
    while not done.is_set():
        writer.journal.compact(summarise)
        compactions += 1

    assert sorted(at_rest(store)) == sorted(f"{t}-{n}" for t in range(3) for n in range(60))
    assert compactions > 0
    for thread in range(3):
        mine = [text for text in at_rest(store) if text.startswith(f"{thread}-")]
        assert mine == [f"{thread}-{number}" for number in range(60)]


@pytest.mark.parametrize("segment_bytes", [TINY, 1 << 20])
def test_compaction_does_not_bring_back_what_was_refused(
    store: Store, clock: FakeClock, faults: Faults, segment_bytes: int
) -> None:
    """What a failed write left in the tail of its segment was refused; its number is used anew."""
    writer = take(store, clock, segment_bytes=segment_bytes)
    writer.note("a")
    faults.fails = {faults.writes + 1, faults.writes + 2}
    assert not is_accepted(writer, "refused")

    writer.journal.compact(summarise)
    while not is_accepted(writer, "b"):
        continue

    again = take(store, clock)
    assert texts(again.replayed) == ["a", "b"]
    assert again.journal.damages == []


def test_the_snapshot_of_a_replaced_writer_changes_nothing(store: Store, clock: FakeClock) -> None:
    old = take(store, clock, segment_bytes=TINY)
    old.note("a")
    new = take(store, clock, segment_bytes=TINY)
    with pytest.raises(LeaseLost):
        old.note("late")
    new.note("b")

    with pytest.raises(LeaseLost):
        old.journal.compact(summarise)

    assert at_rest(store) == ["a", "b"]
    new.note("c")
    new.journal.compact(summarise)
    assert texts(take(store, clock).replayed) == ["a", "b", "c"]


def test_compaction_does_not_hide_damage_that_nobody_was_told_of(
    store: Store, clock: FakeClock
) -> None:
    """A snapshot has no numbers, so a record that is lost on the way into it leaves no gap."""
    writer = take(store, clock, segment_bytes=TINY)
    writer.note("a", "b", "c")
    key = segment_keys(store)[1]
    data = store.get(key).data
    store.put(key, data.replace(b'"b"', b'"B"'))

    writer.journal.compact(summarise)
    writer.note("d")

    again = take(store, clock)
    assert [damage.lost for damage in again.journal.damages if damage.lost] == [1]
    assert texts(again.replayed) == ["a", "c", "d"]

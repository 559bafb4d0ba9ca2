"""Reading a journal: torn tails, damage, foreign segments, newer formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.journal.replay import Replay
from holdfast.journal.segments import (
    JOURNAL,
    Header,
    JournalDamage,
    SegmentName,
    find_chain,
)
from holdfast.storage.base import Store
from holdfast.storage.local.store import LocalStore
from tests.clocks import FakeClock
from tests.unit.journal.holders import RUN_ID, at_rest, segment_keys, summarise, take, texts

TINY = 1


def change(store: Store, key: str, how: Callable[[bytes], bytes]) -> None:
    store.put(key, how(store.get(key).data))


def overwrite(store: Store, key: str, data: bytes) -> None:
    """Change stored bytes behind the store's back, without a sync."""
    if store.local is None:
        store.put(key, data)
    else:
        Path(store.local.path(key)).write_bytes(data)


def descriptions(damages: list[JournalDamage]) -> str:
    return "; ".join(damage.what for damage in damages)


# ---------------------------------------------------------------------------------- torn tails


def test_a_tail_cut_off_at_any_byte_costs_nothing_that_was_acknowledged(
    store: Store, clock: FakeClock
) -> None:
    """Only the last record can be torn: the one whose writer was still waiting for it."""
    take(store, clock).note("a", "b")
    key = segment_keys(store)[-1]
    whole = store.get(key).data
    begin = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    sizes = range(begin, len(whole)) if store.local else range(len(whole))

    for size in sizes:
        overwrite(store, key, whole[:size])
        replay = Replay(store, RUN_ID)

        assert texts(replay.records()) == ["a"], size
        assert replay.damages == [], size
        assert replay.torn == whole[begin:size] or not store.local, size


def test_a_run_goes_on_after_a_tail_was_cut_off_at_any_byte(tmp_path: Path) -> None:
    store, clock = LocalStore(tmp_path / "run"), FakeClock()
    take(store, clock).note("a", "b")
    (key,) = segment_keys(store)
    whole = store.get(key).data
    begin = whole.rindex(b"\n", 0, len(whole) - 1) + 1

    for size in range(begin, len(whole)):
        store.delete_tree(JOURNAL)
        store.put(key, whole[:size])
        numbers = take(store, clock).note("c", "d")

        assert numbers == [2, 3], size
        assert at_rest(store) == ["a", "c", "d"], size
        assert store.get(key).data == whole[:size], "nothing at rest is changed to repair it"


def test_a_segment_cut_off_in_its_header_was_never_used(tmp_path: Path) -> None:
    store, clock = LocalStore(tmp_path / "run"), FakeClock()
    take(store, clock).note("a")
    take(store, clock).note("b")
    key = segment_keys(store)[-1]
    whole = store.get(key).data

    for size in range(whole.index(b"\n") + 1):
        overwrite(store, key, whole[:size])
        replay = Replay(store, RUN_ID)

        assert texts(replay.records()) == ["a"], size
        assert replay.damages == [], size
        assert replay.chain.stale == ([key] if size < whole.index(b"\n") else []), size


# ---------------------------------------------------------------------------------- damage


def test_any_flipped_bit_costs_at_most_the_line_it_is_in_and_is_reported(
    store: Store, clock: FakeClock
) -> None:
    """Every byte of a journal of three segments, one bit each; the lease says how far it went."""
    for pair in (("a", "b"), ("c", "d"), ("e", "f")):
        writer = take(store, clock)
        for text in pair:
            writer.journal.append("note", {"text": text})
        writer.leave()
    clock.time += 1
    for key in segment_keys(store):
        whole = store.get(key).data
        for at in range(len(whole)):
            overwrite(store, key, whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            hit = whole[: at + 1].count(b"\n") - (whole[at : at + 1] == b"\n")
            of_segment = texts_in(whole)
            spared = [t for t in "abcdef" if hit == 0 or t != of_segment[hit - 1]]
            replay = Replay(store, RUN_ID)
            replayed = texts(replay.records())
            is_reported = bool(replay.damages) or replay.next_seq < 7

            assert replayed == spared or replayed == list("abcdef"), f"{key} byte {at}: {replayed}"
            assert is_reported, f"{key} byte {at} went unnoticed"
            assert (
                replayed == list("abcdef")
                or replay.next_seq < 7
                or any(damage.lost for damage in replay.damages)
            ), f"{key} byte {at}: the loss is not counted"
        store.put(key, whole)


def texts_in(segment: bytes) -> list[str]:
    return [json.loads(line)["data"]["text"] for line in segment.splitlines()[1:]]


def test_a_damaged_record_is_kept_for_inspection_and_counted_as_lost(
    tmp_path: Path, clock: FakeClock
) -> None:
    store = LocalStore(tmp_path / "run")
    take(store, clock).note("a", "b", "c")
    (key,) = segment_keys(store)
    change(store, key, lambda data: data.replace(b'"b"', b'"B"'))

    writer = take(store, clock)

    assert texts(writer.replayed) == ["a", "c"]
    gap, middle = writer.journal.damages
    assert b'"B"' in middle.remains
    assert middle.what.endswith("bytes in the middle are damaged")
    assert (gap.what, gap.lost) == ("record 2 is missing", 1)


def test_damage_is_the_same_damage_whenever_it_is_found(store: Store, clock: FakeClock) -> None:
    take(store, clock, segment_bytes=TINY).note("a", "b", "c")
    change(store, segment_keys(store)[1], lambda data: data.replace(b'"b"', b'"B"'))

    first, second = (
        {damage.identity for damage in take(store, clock).journal.damages} for _ in range(2)
    )

    assert first == second != set()


def test_records_that_a_released_lease_promises_are_missed(store: Store, clock: FakeClock) -> None:
    writer = take(store, clock, segment_bytes=TINY)
    writer.note("a", "b", "c", "d")
    writer.leave()
    for key in segment_keys(store)[2:]:
        store.delete(key)

    again = take(store, clock)

    assert texts(again.replayed) == ["a", "b"]
    assert descriptions(again.journal.damages) == "records 3 to 4 are missing"
    assert again.note("e") == [5]


def test_a_journal_that_was_deleted_altogether_is_missed(store: Store, clock: FakeClock) -> None:
    writer = take(store, clock)
    writer.note("a")
    writer.leave()
    store.delete_tree(JOURNAL)

    again = take(store, clock)

    assert descriptions(again.journal.damages) == "record 1 is missing"


def test_a_loss_is_missed_also_by_the_driver_after_the_next(store: Store, clock: FakeClock) -> None:
    """A driver that died before it wrote anything hands on what it was promised."""
    writer = take(store, clock)
    writer.note("a")
    writer.leave()
    take(store, clock)
    store.delete_tree(JOURNAL)

    assert descriptions(take(store, clock).journal.damages) == "record 1 is missing"


def test_a_segment_missing_from_the_middle_is_named_and_the_rest_is_kept(
    store: Store, clock: FakeClock
) -> None:
    take(store, clock, segment_bytes=TINY).note("a", "b", "c")
    store.delete(segment_keys(store)[1])

    writer = take(store, clock)

    assert texts(writer.replayed) == ["a", "c"]
    assert "segment 000001-000001, byte 0: the segment is missing" in descriptions(
        writer.journal.damages
    )
    assert "record 2 is missing" in descriptions(writer.journal.damages)


def test_the_first_segment_missing_is_noticed(store: Store, clock: FakeClock) -> None:
    take(store, clock, segment_bytes=TINY).note("a", "b")
    store.delete(segment_keys(store)[0])

    writer = take(store, clock)

    assert texts(writer.replayed) == ["b"]
    assert "record 1 is missing" in descriptions(writer.journal.damages)


def test_a_segment_that_ends_early_between_two_records_is_noticed(
    store: Store, clock: FakeClock
) -> None:
    """The rest looks whole; only the next segment's header tells how long it was."""
    writer = take(store, clock)
    for text in "ab":
        writer.journal.append("note", {"text": text})
    writer.journal.close()
    writer.note("c")
    first = segment_keys(store)[0]
    change(store, first, lambda data: b"".join(data.splitlines(keepends=True)[:2]))

    again = take(store, clock)

    assert texts(again.replayed) == ["a", "c"]
    assert "bytes early" in descriptions(again.journal.damages)
    assert "record 2 is missing" in descriptions(again.journal.damages)


def test_a_record_that_is_there_twice_counts_once(store: Store, clock: FakeClock) -> None:
    take(store, clock).note("a")
    change(store, segment_keys(store)[0], lambda data: data + data.splitlines(keepends=True)[-1])

    again = take(store, clock)

    assert texts(again.replayed) == ["a"]
    assert descriptions(again.journal.damages) == "record 1 is there twice"


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 2), (0, 2)])
def test_segments_swapped_with_each_other_are_noticed_and_read_in_order(
    store: Store, clock: FakeClock, first: int, second: int
) -> None:
    take(store, clock, segment_bytes=TINY).note("a", "b", "c")
    swap(store, segment_keys(store)[first], segment_keys(store)[second])

    writer = take(store, clock)

    assert texts(writer.replayed) == ["a", "b", "c"]
    assert len(writer.journal.damages) == 2
    assert "it is segment 000001-00000" in descriptions(writer.journal.damages)


def swap(store: Store, first: str, second: str) -> None:
    first_data, second_data = store.get(first).data, store.get(second).data
    store.put(first, second_data)
    store.put(second, first_data)


@pytest.mark.parametrize("compacted", ["all", "some"])
def test_a_snapshot_swapped_with_a_segment_is_noticed_and_nothing_is_lost(
    store: Store, clock: FakeClock, compacted: str
) -> None:
    writer = take(store, clock, segment_bytes=TINY)
    writer.note("a", "b")
    writer.journal.compact(summarise)
    writer.note("c", "d") if compacted == "some" else writer.note("c")
    snapshot, *segments = segment_keys(store)
    swap(store, snapshot, segments[-1])

    again = take(store, clock)

    assert texts(again.replayed) == (
        ["a", "b", "c", "d"] if compacted == "some" else ["a", "b", "c"]
    )
    assert again.journal.damages != []


def test_a_snapshot_swapped_with_the_segment_it_stands_for_is_no_endless_chain(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = take(store, clock, segment_bytes=TINY)
    writer.note("a", "b")
    with monkeypatch.context() as patch:
        patch.setattr(store, "delete", lambda key: None)
        writer.journal.compact(summarise)
    swap(store, *segment_keys(store)[1:])

    again = take(store, clock)

    assert texts(again.replayed) == ["a", "b"]
    assert again.journal.damages != []


def test_a_segment_that_claims_to_follow_itself_is_no_endless_chain(
    store: Store, clock: FakeClock
) -> None:
    name = SegmentName(1, 0)
    header = Header(run_id=RUN_ID, name=name, first=1, after=name, after_bytes=10)
    store.put(f"{JOURNAL}/{name}.jsonl", header.to_line())

    assert find_chain(store, RUN_ID).damages != []


# ---------------------------------------------------------------------------------- snapshots


@pytest.mark.parametrize("hit", ["header", "record"])
def test_a_damaged_snapshot_is_passed_over_while_its_segments_are_there(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, hit: str
) -> None:
    writer = take(store, clock, segment_bytes=TINY)
    writer.note("a", "b")
    with monkeypatch.context() as patch:
        patch.setattr(store, "delete", lambda key: None)
        writer.journal.compact(summarise)
    wrong = b'"format":' if hit == "header" else b'"summary"'
    change(store, segment_keys(store)[-1], lambda data: data.replace(wrong, wrong.upper()))

    again = take(store, clock)

    assert texts(again.replayed) == ["a", "b"]
    assert again.journal.damages != []
    assert again.note("c") == [3]


def test_a_damaged_snapshot_whose_segments_are_gone_is_a_loss_and_what_follows_is_kept(
    store: Store, clock: FakeClock
) -> None:
    writer = take(store, clock, segment_bytes=TINY)
    writer.note("a", "b")
    writer.journal.compact(summarise)
    writer.note("c")
    change(store, segment_keys(store)[0], lambda data: data.replace(b'"summary"', b'"SUMMARY"'))

    again = take(store, clock)

    assert texts(again.replayed) == ["c"]
    loss, remains = again.journal.damages
    assert (loss.what, loss.lost) == ("snapshot 000001-000001.snapshot is damaged", 1)
    assert b'"SUMMARY"' in remains.remains
    assert again.note("d") == [4]


@pytest.mark.parametrize("later", [[], ["c"]])
def test_a_snapshot_with_a_damaged_header_still_tells_what_it_holds(
    store: Store, clock: FakeClock, later: list[str]
) -> None:
    writer = take(store, clock, segment_bytes=TINY)
    writer.note("a", "b")
    writer.journal.compact(summarise)
    writer.note(*later)
    writer.leave()
    change(store, segment_keys(store)[0], lambda data: data.replace(b'"format"', b'"FORMAT"'))

    again = take(store, clock)

    assert texts(again.replayed) == ["a", "b", *later]
    assert again.journal.damages != []
    assert "-1" not in descriptions(again.journal.damages)
    assert again.note("d") == [3 + len(later)]
    assert texts(take(store, clock).replayed) == ["a", "b", *later, "d"]

"""Records that this version did not write, and readers while a journal is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.errors import FormatTooNew, ObjectMissing
from holdfast.journal.replay import Replay, read_journal
from holdfast.journal.segments import (
    JOURNAL,
    Header,
    JournalDamage,
    SegmentName,
    SegmentReader,
    find_chain,
    runs_in_journal,
)
from holdfast.storage.base import Store
from holdfast.storage.memory import MemoryStore
from holdfast.storage.records import seal
from tests.clocks import FakeClock
from tests.unit.journal.holders import RUN_ID, at_rest, summarise, take, texts

TINY = 1


def descriptions(damages: list[JournalDamage]) -> str:
    return "; ".join(damage.what for damage in damages)


def test_a_journal_of_a_newer_format_is_refused_with_its_name_and_what_to_do(
    store: Store, clock: FakeClock
) -> None:
    take(store, clock).note("a")
    key = f"{JOURNAL}/000001-000001.jsonl"
    store.put(key, seal({"format": 2, "run": RUN_ID, "anything": "else"}) + b"\n")

    with pytest.raises(FormatTooNew) as caught:
        take(store, clock)

    assert caught.value.message == (
        f"{store.url}/{key}: journal format 2, this version reads up to 1"
    )
    assert caught.value.hint == "use the version of Holdfast that wrote it, or a newer one"


def test_a_segment_of_another_run_is_reported_and_not_read(store: Store, clock: FakeClock) -> None:
    take(store, clock).note("a")
    name = SegmentName(1, 1)
    stranger = Header(run_id="r2", name=name, first=2, after=SegmentName(1, 0), after_bytes=0)
    store.put(f"{JOURNAL}/{name}.jsonl", stranger.to_line())

    writer = take(store, clock)

    assert texts(writer.replayed) == ["a"]
    assert descriptions(writer.journal.damages) == (
        "segment 000001-000001, byte 0: it belongs to another run, r2"
    )


@pytest.mark.parametrize("name", ["notes.txt", "1-2.jsonl", "000001-000000.jsonl.bak", ".x"])
def test_files_that_are_not_segments_are_left_alone(
    store: Store, clock: FakeClock, name: str
) -> None:
    take(store, clock).note("a")
    store.put(f"{JOURNAL}/{name}", b"whatever")

    assert at_rest(store) == ["a"]
    assert Replay(store, RUN_ID).chain.stale == []


def test_numbers_of_more_than_six_digits_are_read_in_order(store: Store) -> None:
    assert SegmentName.parse("1000000-000001") > SegmentName.parse("999999-000002")
    assert str(SegmentName(1_000_000, 7)) == "1000000-000007"


# ---------------------------------------------------------------------------------- looking on


class Compacting(MemoryStore):
    """A store whose owner compacts between the listing of an onlooker and its reads."""

    def __init__(self) -> None:
        super().__init__()
        self.compact: Callable[[], None] | None = None

    def read(self, key: str, start: int, length: int) -> bytes:
        self._compact_now()
        return super().read(key, start, length)

    def _compact_now(self) -> None:
        compact, self.compact = self.compact, None
        if compact is not None:
            compact()


def test_an_onlooker_begins_again_when_segments_vanish_before_they_are_read() -> None:
    store, clock = Compacting(), FakeClock()
    writer = take(store, clock)
    writer.note("a", "b")
    store.compact = lambda: writer.journal.compact(summarise)

    records, replay = read_journal(store, RUN_ID)

    assert texts(records) == ["a", "b"]
    assert replay.damages == []


def test_an_onlooker_begins_again_when_a_segment_vanishes_in_the_middle(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = take(store, clock, segment_bytes=TINY)
    writer.note("a", "b")
    get = store.get
    compactions = iter([lambda: writer.journal.compact(summarise)])

    def get_late(key: str) -> object:
        if key.startswith(JOURNAL):
            next(compactions, lambda: None)()
        return get(key)

    monkeypatch.setattr(store, "get", get_late)
    records, replay = read_journal(store, RUN_ID)

    assert texts(records) == ["a", "b"]
    assert replay.damages == []


def test_an_onlooker_gives_up_when_what_is_listed_can_never_be_read(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(store, clock).note("a")

    def never(key: str) -> object:
        raise ObjectMissing(f"there is no {key}", key=key)

    monkeypatch.setattr(store, "get", never)

    with pytest.raises(ObjectMissing, match=JOURNAL):
        read_journal(store, RUN_ID)


def test_a_journal_of_a_newer_format_is_refused_before_the_run_is_touched(
    store: Store, clock: FakeClock
) -> None:
    list(runs_in_journal(store))
    take(store, clock).note("a")
    list(runs_in_journal(store))
    store.put(f"{JOURNAL}/000001-000001.jsonl", seal({"format": 2, "run": RUN_ID}) + b"\n")

    with pytest.raises(FormatTooNew, match="journal format 2"):
        list(runs_in_journal(store))


def test_a_segment_that_is_gone_for_good_is_an_error_for_its_reader(store: Store) -> None:
    name = SegmentName(1, 0)
    store.put(f"{JOURNAL}/{name}.jsonl", Header(run_id=RUN_ID, name=name, first=1).to_line())
    (segment,) = find_chain(store, RUN_ID).segments
    store.delete(segment.key)

    with pytest.raises(ObjectMissing):
        list(SegmentReader(store, segment).records())

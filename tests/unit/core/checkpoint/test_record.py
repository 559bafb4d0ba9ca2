from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.checkpoint.manifest import FileEntry, Manifest
from holdfast.core.checkpoint.record import Event, Kept, RunRecord, record_of


def committed(number: int, **changes: Any) -> Event:
    data = {
        "number": number,
        "directory": f"checkpoint_{number:06d}",
        "epoch": 1,
        "attempt": 1,
        "step": 10 * number,
        "metrics": {"acc": number / 10},
        "created": 1000.0,
    }
    return ("checkpoint_committed", {**data, **changes})


def begun(number: int, directory: str = "") -> Event:
    directory = directory or f"checkpoint_{number:06d}"
    return ("checkpoint_begun", {"number": number, "directory": directory, "attempt": 1})


def opened(epoch: int, next_number: int = 0) -> Event:
    return ("run_opened", {"epoch": epoch, "owner": "me", "next_number": next_number})


def manifest(number: int, epoch: int) -> Manifest:
    return Manifest(
        run_id="r1",
        directory=f"checkpoint_{number:06d}",
        number=number,
        epoch=epoch,
        attempt=1,
        world_size=1,
        created=0.0,
        algorithm="x",
        files=(FileEntry("model.pt", 1, "aa"),),
        metrics={"loss": 1.0},
    )


def test_a_new_run_has_nothing_and_begins_to_count_at_zero() -> None:
    record = RunRecord()

    assert (record.epoch, record.next_number, record.kept, record.closed) == (0, 0, {}, False)


def test_a_number_that_was_given_out_is_never_given_again_even_if_it_is_not_used() -> None:
    record = record_of([opened(1), begun(0), begun(1), opened(2)])

    assert record.next_number == 2


def test_a_commit_takes_its_number_even_if_the_journal_never_saw_it_begin() -> None:
    assert record_of([committed(4)]).next_number == 5


def test_an_opening_can_only_raise_the_next_number() -> None:
    assert record_of([begun(7), opened(2, next_number=3)]).next_number == 8
    assert record_of([begun(7), opened(2, next_number=30)]).next_number == 30


def test_what_was_begun_is_litter_until_it_is_committed() -> None:
    record = record_of([begun(0), begun(1), committed(1)])

    assert record.begun == {0: "checkpoint_000000"}
    assert list(record.kept) == [1]


def test_a_retired_checkpoint_is_no_longer_kept_and_its_folder_is_remembered() -> None:
    record = record_of([committed(0), committed(1), ("checkpoint_retired", {"number": 0})])

    assert list(record.kept) == [1]
    assert record.retired == {0: "checkpoint_000000"}


def test_to_retire_what_is_not_there_changes_nothing() -> None:
    record = record_of([committed(1), ("checkpoint_retired", {"number": 0})])

    assert list(record.kept) == [1]
    assert record.retired == {}


def test_swept_litter_is_forgotten_but_its_number_is_not() -> None:
    retired = ("checkpoint_retired", {"number": 1})
    record = record_of(
        [begun(0), begun(1), committed(1), retired, ("litter_swept", {"numbers": [0, 1, 9]})]
    )

    assert (record.begun, record.retired) == ({}, {})
    assert record.next_number == 2


def test_the_newest_usable_checkpoint_comes_first() -> None:
    record = record_of([committed(2), committed(0), committed(1)])

    assert [checkpoint.number for checkpoint in record.usable()] == [2, 1, 0]


def test_a_quarantined_checkpoint_is_kept_but_neither_used_nor_retired() -> None:
    bad = ("checkpoint_quarantined", {"number": 1, "problems": ["model.pt is missing"]})
    record = record_of([committed(0), committed(1), bad])

    assert [checkpoint.number for checkpoint in record.usable()] == [0]
    assert [bad.problems for bad in record.quarantined()] == [("model.pt is missing",)]
    assert [candidate.number for candidate in record.candidates()] == [0]


def test_a_pin_holds_until_everybody_who_pinned_has_let_go() -> None:
    def pinned(by: str) -> Event:
        return ("checkpoint_pinned", {"number": 0, "by": by})

    def unpinned(by: str) -> Event:
        return ("checkpoint_unpinned", {"number": 0, "by": by})

    events = [committed(0), pinned("eval"), pinned("eval"), pinned("ann"), unpinned("eval")]

    assert record_of(events).kept[0].pins == ("ann",)
    assert record_of(events).candidates()[0].pinned
    assert not record_of([*events, unpinned("ann")]).candidates()[0].pinned


@pytest.mark.parametrize(
    "event",
    [
        ("checkpoint_pinned", {"number": 9, "by": "ann"}),
        ("checkpoint_unpinned", {"number": 9, "by": "ann"}),
        ("checkpoint_quarantined", {"number": 9, "problems": ["x"]}),
    ],
    ids=lambda event: event[0],
)
def test_news_of_a_checkpoint_that_is_gone_pass_by_unharmed(event: Event) -> None:
    assert record_of([committed(0), event]) == record_of([committed(0)])


def test_events_of_others_pass_by_unharmed() -> None:
    assert record_of([("trial_started", {"trial": 3})]) == RunRecord()


def test_a_run_is_closed_until_it_is_opened_again() -> None:
    assert record_of([opened(1), ("run_closed", {})]).closed
    assert not record_of([opened(1), ("run_closed", {}), opened(2)]).closed


def test_damage_is_remembered_so_that_it_is_reported_once() -> None:
    record = record_of([("journal_damaged", {"identity": "x@7", "what": "it burns", "lost": 0})])

    assert record.known_damage == {"x@7": "it burns"}


def test_a_commit_that_was_cut_off_after_its_manifest_is_current() -> None:
    record = record_of([opened(3), begun(5)])

    assert record.is_current(manifest(5, epoch=3))


def test_a_manifest_of_an_earlier_epoch_that_the_journal_does_not_know_is_not_current() -> None:
    """A driver that had been replaced put it after its successor had looked."""
    record = record_of([opened(2), begun(5), opened(3)])

    assert not record.is_current(manifest(5, epoch=2))


@pytest.mark.parametrize("later", [[], [("checkpoint_retired", {"number": 5})]])
def test_a_checkpoint_that_is_kept_or_was_retired_is_not_found_anew(later: list[Event]) -> None:
    record = record_of([opened(3), begun(5), committed(5, epoch=3), *later])

    assert not record.is_current(manifest(5, epoch=3))


def test_what_is_kept_of_a_manifest_says_where_and_when_it_was_committed() -> None:
    assert Kept.of(manifest(5, epoch=3)) == Kept(
        number=5,
        directory="checkpoint_000005",
        epoch=3,
        attempt=1,
        step=None,
        metrics={"loss": 1.0},
        created=0.0,
    )


EVENTFUL: list[Event] = [
    opened(1),
    begun(0),
    committed(0, metrics={"eval": {"acc": 0.5}}),
    begun(1),
    begun(2, "named"),
    committed(2, directory="named", step=None),
    ("checkpoint_pinned", {"number": 0, "by": "ann"}),
    begun(3),
    committed(3),
    ("checkpoint_retired", {"number": 3}),
    ("checkpoint_quarantined", {"number": 2, "problems": ["a", "b"]}),
    ("journal_damaged", {"identity": "x@7", "what": "it burns", "lost": 0}),
    opened(2, 9),
    ("run_closed", {}),
]


@pytest.mark.parametrize("length", range(len(EVENTFUL) + 1))
def test_a_snapshot_leads_to_the_same_record_as_the_events_it_stands_for(length: int) -> None:
    record = record_of(EVENTFUL[:length])

    assert record_of(record.to_events()) == record
    assert len(record.to_events()) == 1


@pytest.mark.parametrize("length", range(len(EVENTFUL) + 1))
def test_events_after_a_snapshot_go_on_where_it_ends(length: int) -> None:
    snapshot = record_of(EVENTFUL[:length]).to_events()

    assert record_of([*snapshot, *EVENTFUL[length:]]) == record_of(EVENTFUL)


def test_a_snapshot_does_not_share_anything_with_the_record_it_was_made_of() -> None:
    record = record_of(EVENTFUL)
    again = record_of(record.to_events())

    again.apply(*committed(20))
    again.apply("journal_damaged", {"identity": "y", "what": "more", "lost": 1})

    assert record == record_of(EVENTFUL)

"""What happens in a study on its way to the journal, when the journal cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.control import study_journal
from holdfast.control.observing import Observers
from holdfast.control.open_run import OpenRun, open_run
from holdfast.control.study_journal import StudyJournal
from holdfast.control.study_log import PackedTail, StudyTail, read_archive, write_archive
from holdfast.control.study_plan import StudyObserver
from holdfast.core.judges import Judges
from holdfast.core.study import Study
from holdfast.core.study_rules import Rules
from holdfast.core.trial import Trial
from holdfast.errors import StoreFull
from holdfast.journal.replay import read_journal
from holdfast.storage.locate import open_store
from holdfast.tune.onlooking import Onlooker


@pytest.fixture
def run(tmp_path: Path) -> Iterator[OpenRun]:
    with open_run(open_store(tmp_path / "study"), kind="tune") as run:
        yield run


def new_journal(run: OpenRun) -> StudyJournal:
    onlooker = Onlooker()
    return StudyJournal(run, Study(Judges(onlooker, onlooker, onlooker), Rules()), Observers())


def test_after_a_write_that_failed_nothing_can_happen_any_more(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = new_journal(run)

    def is_full(lines: bytes, count: int) -> None:
        raise StoreFull("no space left")

    with monkeypatch.context() as full:
        full.setattr(run.journal, "_write", is_full)
        journal.happen("search_ended", {})
        with pytest.raises(StoreFull):
            journal.settle()

    # There is room again, but what was believed meanwhile is in no journal.
    with pytest.raises(StoreFull):
        journal.happen("study_stopped", {"reason": "x"})
    with pytest.raises(StoreFull):
        journal.settle()
    journal.close()


def test_a_write_aside_that_fails_is_told_to_who_goes_on(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = new_journal(run)

    def breaks(lines: bytes, count: int) -> None:
        raise OSError("a disk of another kind")

    with monkeypatch.context() as broken:
        broken.setattr(run.journal, "_write", breaks)
        journal.happen("search_ended", {})
        journal.push()
        journal.close()

    with pytest.raises(OSError, match="of another kind"):
        journal.happen("search_ended", {})


def test_what_happened_before_a_state_can_be_compacted_at_once(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_journal, "STATE_AFTER", 3)
    journal = new_journal(run)
    journal.tidy()
    for reason in "abc":
        journal.happen("study_stopped", {"reason": reason})
    journal.write_state()
    for reason in "abc":
        journal.happen("study_stopped", {"reason": reason})
    journal.tidy()
    journal.settle()
    run.compact()

    kinds = [record.kind for record in read_journal(run.store)[0]]
    assert kinds.count("study_state") == 1
    assert "study_stopped" not in kinds
    journal.close()


def test_a_state_waits_until_observers_have_little_to_flush(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not for ever: a disk that is slow must not let the journal grow without end."""
    monkeypatch.setattr(study_journal, "STATE_AFTER", 3)
    told: list[str] = []

    class Slow(StudyObserver):
        def settle(self) -> bool:
            told.append("settle")
            return len(told) > 2

        def flush(self) -> bool:
            told.append("flush")
            return True

    onlooker = Onlooker()
    study = Study(Judges(onlooker, onlooker, onlooker), Rules())
    journal = StudyJournal(run, study, Observers([Slow()]))
    for reason in "abc":
        journal.happen("study_stopped", {"reason": reason})
    for _ in range(4):
        journal.tidy()
    assert told == ["settle", "settle", "settle", "flush"]

    told.clear()
    for reason in "abcdef":
        journal.happen("study_stopped", {"reason": reason})
    journal.tidy()
    assert told == ["settle", "flush"]
    journal.close()


def test_trials_are_archived_beside_the_study_and_all_of_them_by_its_end(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_journal, "ARCHIVE_AFTER", 2)
    onlooker = Onlooker()
    study = Study(Judges(onlooker, onlooker, onlooker), Rules())
    journal = StudyJournal(run, study, Observers())
    study.finished = {name: Trial(name) for name in "ab"}
    journal.tidy()
    study.finished |= {name: Trial(name) for name in "cde"}

    journal.write_last_state()

    assert [count for _, count in study.archives] == [2, 3]
    kept = [trial.trial_id for key, _ in study.archives for trial in read_archive(run.store, key)]
    assert kept == ["a", "b", "c", "d", "e"]
    assert not study.finished
    journal.close()


def test_trials_that_cannot_be_archived_stay_until_they_can(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(study_journal, "ARCHIVE_AFTER", 2)
    onlooker = Onlooker()
    study = Study(Judges(onlooker, onlooker, onlooker), Rules())
    journal = StudyJournal(run, study, Observers())
    study.finished = {name: Trial(name) for name in "ab"}

    def is_full(*_: object) -> None:
        raise StoreFull("no space left")

    with monkeypatch.context() as full:
        full.setattr("holdfast.control.study_log.write_archive", is_full)
        journal.write_last_state()
    assert list(study.finished) == ["a", "b"]
    assert "not archived yet: no space left" in caplog.text

    study.finished |= {name: Trial(name) for name in "cd"}
    journal.write_last_state()
    assert [count for _, count in study.archives] == [4]
    journal.close()


def test_what_is_packed_for_a_compaction_comes_out_as_it_went_in() -> None:
    happened: list[tuple[str, dict[str, Any]]] = [
        ("trial_added", {"trial_id": "forgotten"}),
        ("study_state", {"trials": []}),
        ("trial_added", {"trial_id": "a", "config": {"x": float("inf"), "n": 2**70, "s": "ä"}}),
        ("checkpoint_begun", {"number": 1}),  # of no concern to a study
        ("trial_result", {"id": "a", "result": {"loss": 0.5, "tags": [None, True, ""]}}),
    ]
    plain, packed = StudyTail(), PackedTail()
    for kind, data in happened:
        plain.apply(kind, data)
        packed.apply(kind, data)

    assert packed.to_events() == plain.to_events()
    assert [kind for kind, _ in packed.to_events()] == [
        "study_state",
        "trial_added",
        "trial_result",
    ]


def test_a_driver_that_was_replaced_cannot_write_over_an_archive(run: OpenRun) -> None:
    def kept(key: str) -> Any:
        return run.store.get(key).data

    newer = write_archive(run.store, 2, 0, [Trial("new")])
    before = kept(newer)
    older = write_archive(run.store, 1, 0, [Trial("old")])

    assert older != newer
    assert kept(newer) == before


def test_a_state_that_cannot_be_written_down_is_not_needed_for_the_study_to_go_on(
    run: OpenRun, caplog: pytest.LogCaptureFixture
) -> None:
    """What happened is in the journal, and stays there."""

    class Forgetful(Onlooker):
        def get_state(self) -> dict[str, Any]:
            raise RuntimeError("a bug of the user's")

    judge = Forgetful()
    study = Study(Judges(judge, judge, judge), Rules())
    journal = StudyJournal(run, study, Observers())
    with pytest.raises(RuntimeError):
        journal.write_state()  # nothing is lost yet
    study.made = 1
    journal.happen("search_ended", {})
    journal.write_state()
    journal.write_state()
    journal.happen("study_stopped", {"reason": "x"})
    journal.close()

    assert caplog.text.count("the state of the study failed") == 1
    kinds = [event.kind for event in run.journal.replay()]
    assert [one for one in kinds if "s" in one[:1]] == ["search_ended", "study_stopped"]

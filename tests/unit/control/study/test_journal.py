"""What happens in a study on its way to the journal, when the journal cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.control.record.open_run import OpenRun, OpenStudy
from holdfast.control.study import journal as study_journal
from holdfast.control.study.archive import archived_trials, write_archive
from holdfast.control.study.journal import StudyJournal
from holdfast.control.study.reader import NoJudge, rebuild
from holdfast.control.study.tail import PackedTail, StudyTail
from holdfast.core.run.outcomes import Finished, to_data
from holdfast.core.study.events import SearchEnded, StudyStopped
from holdfast.core.study.judges import Judges
from holdfast.core.study.machine import Study
from holdfast.core.study.rules import Rules
from holdfast.core.study.trial import Status, Trial
from holdfast.errors import LeaseLost, StoreBusy, StoreFull
from holdfast.journal.replay import read_journal
from holdfast.storage.locate import open_store


@pytest.fixture
def run(tmp_path: Path) -> Iterator[OpenRun]:
    with OpenStudy.open(open_store(tmp_path / "study")) as run:
        yield run


def new_journal(run: OpenRun) -> StudyJournal:
    nobody = NoJudge()
    return StudyJournal(run, Study(Judges(nobody, nobody, nobody), Rules()))


def test_after_a_write_that_failed_nothing_can_happen_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "study")
    run = OpenStudy.open(store)
    journal = new_journal(run)

    def is_full(lines: bytes, count: int) -> None:
        raise StoreFull("no space left")

    with monkeypatch.context() as full:
        full.setattr(run.journal, "_write", is_full)
        journal.happen(SearchEnded())
        with pytest.raises(StoreFull):
            journal.settle()

    # There is room again, but what was believed meanwhile is in no journal.
    for act in (
        lambda: journal.happen(StudyStopped("x")),
        journal.settle,
        journal.write_state,
        journal.close,
        run.close,
    ):
        with pytest.raises(StoreFull):
            act()
    assert [record.kind for record in read_journal(store)[0]] == ["run_opened"]
    OpenStudy.open(store).close()  # at once


def test_a_write_aside_that_fails_is_told_to_who_goes_on_and_to_who_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = OpenStudy.open(open_store(tmp_path / "study"))
    journal = new_journal(run)

    def breaks(lines: bytes, count: int) -> None:
        raise OSError("a disk of another kind")

    with monkeypatch.context() as broken:
        broken.setattr(run.journal, "_write", breaks)
        journal.happen(SearchEnded())
        journal.push()
        with pytest.raises(OSError, match="of another kind"):
            journal.close()

    with pytest.raises(OSError, match="of another kind"):
        journal.happen(SearchEnded())
    with pytest.raises(OSError, match="of another kind"):
        run.close()


def test_what_happened_before_a_state_can_be_compacted_at_once(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_journal, "STATE_AFTER", 3)
    journal = new_journal(run)
    journal.tidy()
    for reason in "abc":
        journal.happen(StudyStopped(reason))
    journal.write_state()
    for reason in "abc":
        journal.happen(StudyStopped(reason))
    journal.tidy()
    journal.settle()
    run.compact()

    kinds = [record.kind for record in read_journal(run.store)[0]]
    assert kinds.count("study_state") == 1
    assert "study_stopped" not in kinds
    journal.close()


class Slow:
    """Is asked to make durable what it was told, and does so when somebody says."""

    def __init__(self) -> None:
        self.is_done = False
        self.asked: list[str] = []

    def settle(self) -> Callable[[], bool]:
        self.asked.append("settle")
        return lambda: self.is_done

    def flush(self) -> bool:
        self.asked.append("flush")
        return True


def slow_journal(run: OpenRun) -> tuple[StudyJournal, Study, Slow]:
    nobody, slow = NoJudge(), Slow()
    study = Study(Judges(nobody, nobody, nobody), Rules())
    return StudyJournal(run, study, [slow]), study, slow


def stop(journal: StudyJournal, *reasons: str) -> None:
    for reason in reasons:
        journal.happen(StudyStopped(reason))


def read_again(run: OpenRun) -> StudyTail:
    tail = StudyTail()
    for record in read_journal(run.store)[0]:
        tail.apply(record.kind, record.data)
    return tail


def reasons_since(tail: StudyTail) -> list[str]:
    return [data["reason"] for kind, data in tail.events if kind == "study_stopped"]


def test_a_study_goes_on_while_what_is_before_a_state_becomes_durable(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_journal, "STATE_AFTER", 3)
    journal, study, slow = slow_journal(run)
    stop(journal, "a", "b", "c")
    journal.tidy()  # the state is taken
    stop(journal, "d")
    journal.tidy()
    journal.settle()
    before = read_again(run)
    assert before.state is None, "some of it is in no file yet"
    assert reasons_since(before) == ["a", "b", "c", "d"]

    slow.is_done = True
    journal.tidy()
    stop(journal, "e")
    journal.settle()

    assert slow.asked == ["settle"], "nobody has waited"
    found = read_again(run)
    assert found.state is not None and found.state["stopping"] == "c"
    assert reasons_since(found) == ["d", "e"]
    assert study.stopping == "e"
    journal.close()


def test_a_compaction_keeps_what_happened_since_a_state_was_taken(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the mark, the state and what follows, wherever the compaction finds them."""
    monkeypatch.setattr(study_journal, "STATE_AFTER", 3)
    journal, _, slow = slow_journal(run)
    stop(journal, "a", "b", "c")
    journal.tidy()
    stop(journal, "d")
    journal.settle()
    run.journal.end_segment()
    stop(journal, "e")
    journal.settle()
    run.compact()
    slow.is_done = True
    journal.tidy()
    journal.settle()
    for _ in range(2):
        run.compact()
        found = read_again(run)
        assert found.state is not None and found.state["stopping"] == "c"
        assert reasons_since(found) == ["d", "e"]
    journal.close()


def test_a_state_of_a_moment_that_is_not_known_any_more_does_not_count() -> None:
    """The line of its mark is damaged: what happened leads to the same."""
    tail = StudyTail()
    tail.apply("study_state", {"stopping": None})
    for reason in "ab":
        tail.apply("study_stopped", {"reason": reason})
    tail.apply("study_state", {"stopping": "a", "taken": "1-1"})

    assert tail.state is not None and tail.state["stopping"] is None
    assert reasons_since(tail) == ["a", "b"]


def test_a_disk_that_is_slow_does_not_let_the_journal_grow_without_end(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_journal, "STATE_AFTER", 3)
    journal, _, slow = slow_journal(run)
    stop(journal, "a", "b", "c")
    journal.tidy()
    stop(journal, *"x" * (study_journal.PATIENCE * 3 - 1))
    journal.tidy()
    assert slow.asked == ["settle"]

    stop(journal, "y")
    journal.tidy()

    assert slow.asked == ["settle", "flush"]
    journal.settle()
    found = read_again(run)
    assert found.state is not None and found.state["stopping"] == "y"
    assert not found.events
    journal.close()


def test_an_observer_that_fails_keeps_what_it_was_told_in_the_journal(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_journal, "STATE_AFTER", 3)

    class Failing:
        def settle(self) -> Callable[[], bool]:
            raise OSError("a file of its own")

        def flush(self) -> bool:
            raise OSError("a file of its own")

    nobody = NoJudge()
    study = Study(Judges(nobody, nobody, nobody), Rules())
    journal = StudyJournal(run, study, [Failing()])
    stop(journal, "a", "b", "c")
    for _ in range(3):
        journal.tidy()
    stop(journal, *"x" * (study_journal.PATIENCE * 3))
    journal.tidy()
    journal.settle()

    found = read_again(run)
    assert found.state is None
    assert reasons_since(found) == ["a", "b", "c", *"x" * (study_journal.PATIENCE * 3)]
    journal.close()


def test_trials_are_archived_beside_the_study_and_all_of_them_by_its_end(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_journal, "ARCHIVE_AFTER", 2)
    nobody = NoJudge()
    study = Study(Judges(nobody, nobody, nobody), Rules())
    journal = StudyJournal(run, study)
    study.finished = {name: Trial(name, folder=name) for name in "ab"}
    journal.tidy()
    study.finished |= {name: Trial(name, folder=name) for name in "cde"}

    journal.write_last_state()

    assert [count for _, count in study.archives] == [2, 3]
    damage: dict[str, list[str]] = {}
    kept = [trial.trial_id for trial in archived_trials(run.store, study.archives, damage)]
    assert kept == ["e", "d", "c", "b", "a"]
    assert not damage
    assert not study.finished
    journal.close()


def test_trials_that_cannot_be_archived_stay_until_they_can(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(study_journal, "ARCHIVE_AFTER", 2)
    nobody = NoJudge()
    study = Study(Judges(nobody, nobody, nobody), Rules())
    journal = StudyJournal(run, study)
    study.finished = {name: Trial(name, folder=name) for name in "ab"}

    def is_full(*_: object) -> None:
        raise StoreFull("no space left")

    with monkeypatch.context() as full:
        full.setattr("holdfast.control.study.archive.write_archive", is_full)
        journal.write_last_state()
    assert list(study.finished) == ["a", "b"]
    assert "not archived yet: no space left" in caplog.text

    study.finished |= {name: Trial(name, folder=name) for name in "cd"}
    journal.write_last_state()
    assert [count for _, count in study.archives] == [4]
    journal.close()


def test_what_is_packed_for_a_compaction_comes_out_as_it_went_in() -> None:
    happened: list[tuple[str, dict[str, Any]]] = [
        ("trial_added", {"trial_id": "forgotten"}),
        ("state_taken", {"mark": "1-1"}),
        ("study_stopped", {"reason": "x"}),
        ("study_state", {"trials": [], "taken": "1-1"}),
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
        "study_stopped",
        "trial_added",
        "trial_result",
    ]


def test_a_driver_that_was_replaced_cannot_write_over_an_archive(run: OpenRun) -> None:
    def kept(key: str) -> Any:
        return run.store.get(key).data

    newer = write_archive(run.store, 2, 0, [Trial("new", folder="new")])
    before = kept(newer)
    older = write_archive(run.store, 1, 0, [Trial("old", folder="old")])

    assert older != newer
    assert kept(newer) == before


def test_a_state_that_cannot_be_written_down_is_not_needed_for_the_study_to_go_on(
    run: OpenRun, caplog: pytest.LogCaptureFixture
) -> None:
    """What happened is in the journal, and stays there."""

    class Forgetful(NoJudge):
        def get_state(self) -> dict[str, Any]:
            raise RuntimeError("a bug of the user's")

    judge = Forgetful()
    study = Study(Judges(judge, judge, judge), Rules())
    journal = StudyJournal(run, study)
    with pytest.raises(RuntimeError):
        journal.write_state()  # nothing is lost yet
    study.made = 1
    journal.happen(SearchEnded())
    journal.write_state()
    journal.write_state()
    journal.happen(StudyStopped("x"))
    journal.close()

    assert caplog.text.count("the state of the study failed") == 1
    kinds = [event.kind for event in run.journal.replay()]
    assert [one for one in kinds if "s" in one[:1]] == ["search_ended", "study_stopped"]


def test_what_was_told_of_trials_that_are_archived_by_now_is_recalled_with_them() -> None:
    """It may be in no file yet: a writer was about to write it when the driver died."""
    nobody = NoJudge()
    study = Study(Judges(nobody, nobody, nobody), Rules())
    added: dict[str, Any] = {"trial_id": "a", "number": 0, "config": {}, "trainable": "f"}
    added |= {"folder": "a", "params": {}, "tag": "0", "resources": [{"CPU": 1.0}]}
    one: dict[str, Any] = {"id": "a", "attempt": 1}
    ended = {**one, "how": "done", "exit": to_data(Finished(0, "node"))}
    tail = StudyTail()
    for kind, data in [
        ("trial_added", added),
        ("trial_started", {**one, "places": ["node"], "after_step": 0, "time": 0.0}),
        ("trial_result", {**one, "step": 1, "result": {"loss": 0.5}}),
        ("trial_exited", ended),
        ("trials_archived", {"key": "k", "ids": ["a"]}),
    ]:
        tail.apply(kind, data)

    recalled = rebuild(study, tail)

    assert not study.finished
    assert [step for step, *_ in recalled.rows["a"]] == [1]
    assert recalled.trials(study)["a"].status is Status.TERMINATED


def test_one_damaged_line_of_an_archive_costs_one_trial(run: OpenRun) -> None:
    key = write_archive(run.store, 1, 0, [Trial(name, folder=name) for name in "abcd"])
    lines = run.store.get(key).data.splitlines(keepends=True)

    def read(*changed: bytes) -> tuple[list[str], dict[str, list[str]]]:
        run.store.put(key, b"".join(changed))
        damage: dict[str, list[str]] = {}
        found = [one.trial_id for one in archived_trials(run.store, [(key, 4)], damage)]
        return found[::-1], damage

    a, b, c, d = lines
    flipped = b[:30] + bytes([b[30] ^ 1]) + b[31:]
    mismatch = "line 2: the record does not match its checksum"
    assert read(a, b, c, d) == (["a", "b", "c", "d"], {})
    assert read(a, flipped, c, d) == (
        ["a", "c", "d"],
        {key: [mismatch, "1 of its 4 trials cannot be read"]},
    )
    joined = b[:-1] + b"?" + c  # a newline is gone, and no trial with it
    assert read(a, joined, d) == (["a", "b", "c", "d"], {key: [mismatch]})
    assert read(a, b) == (["a", "b"], {key: ["2 of its 4 trials cannot be read"]})
    run.store.delete(key)
    gone: dict[str, list[str]] = {}
    assert list(archived_trials(run.store, [(key, 4)], gone)) == []
    assert gone == {key: ["it is missing, and with it 4 finished trials"]}


def test_an_archive_that_cannot_be_read_now_is_not_damaged(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = write_archive(run.store, 1, 0, [Trial("a", folder="a")])

    def fails(_: str) -> None:
        raise StoreBusy("the line is noisy")

    monkeypatch.setattr(run.store, "get", fails)
    damage: dict[str, list[str]] = {}
    with pytest.raises(StoreBusy):
        list(archived_trials(run.store, [(key, 1)], damage))
    assert not damage


def test_a_driver_that_slept_and_was_replaced_takes_nothing_in(
    run: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = NoJudge()
    study = Study(Judges(nobody, nobody, nobody), Rules())
    journal = StudyJournal(run, study)

    def is_lost() -> None:
        raise LeaseLost("another driver has it")

    monkeypatch.setattr(run.lease, "check_after_sleep", is_lost)

    with pytest.raises(LeaseLost):
        journal.happen(StudyStopped("too late"))

    assert study.stopping is None
    journal.close()
    assert "study_stopped" not in [record.kind for record in read_journal(run.store)[0]]

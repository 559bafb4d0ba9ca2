"""A study is rebuilt in one way: a driver refuses odd records, a reader passes them over."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.control.study.reader import NoJudge, all_trials, rebuild
from holdfast.control.study.tail import StudyTail
from holdfast.core.study.events import StudyOpened, StudyStopped, TrialAdded, to_data
from holdfast.core.study.judges import Judges
from holdfast.core.study.machine import Study
from holdfast.core.study.rules import Rules
from holdfast.errors import Damaged
from holdfast.storage.memory import MemoryStore
from tests.unit.core.study.studies import added

OPENED = StudyOpened(rooms={"node": {"CPU": 2.0}})


def new_study() -> Study:
    nobody = NoJudge()
    return Study(Judges(nobody, nobody, nobody), Rules())


def tail_of(*records: tuple[str, Any]) -> StudyTail:
    tail = StudyTail()
    for kind, data in records:
        tail.apply(kind, data)
    return tail


def recorded(event: StudyOpened | StudyStopped | TrialAdded) -> tuple[str, Any]:
    return event.kind, to_data(event)


ODD_EVENT = ("trial_started", {"id": "a", "attempt": "first"})
ODD_STATE = ("study_state", {"trials": 7, "taken": None})


@pytest.mark.parametrize("odd", [ODD_EVENT, ODD_STATE], ids=["event", "state"])
def test_a_driver_refuses_a_record_that_it_cannot_take_in(odd: tuple[str, Any]) -> None:
    with pytest.raises(Damaged, match="not of the form that Holdfast writes"):
        rebuild(new_study(), tail_of(odd, recorded(OPENED), recorded(added("a"))))


@pytest.mark.parametrize("odd", [ODD_EVENT, ODD_STATE], ids=["event", "state"])
def test_a_reader_passes_it_over_and_says_so(odd: tuple[str, Any]) -> None:
    study, problems = new_study(), list[str]()

    rebuild(study, tail_of(odd, recorded(OPENED), recorded(added("a"))), problems)

    assert list(study.trials) == ["a"]
    assert len(problems) == 1
    assert "cannot" in problems[0]


def test_both_see_the_same_trials() -> None:
    records = [recorded(OPENED), recorded(added("a")), recorded(added("b", 1))]
    records.append(recorded(StudyStopped("enough")))
    driven, looked_at = new_study(), new_study()

    rebuild(driven, tail_of(*records))
    rebuild(looked_at, tail_of(*records), [])

    store = MemoryStore()
    expected = [trial.to_data() for trial in all_trials(store, driven, {})]
    assert [trial.to_data() for trial in all_trials(store, looked_at, {})] == expected
    assert [data["status"] for data in expected] == ["TERMINATED", "TERMINATED"]


def test_what_was_read_is_dropped_and_nothing_waits() -> None:
    tail = tail_of(recorded(OPENED), recorded(added("a")))
    study = new_study()

    rebuild(study, tail)

    assert (tail.state, tail.events) == (None, [])
    assert not study.delays and not study.ended

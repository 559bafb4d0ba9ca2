"""Events of a study in the journal: the form of each, to the letter, and older forms of some."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from holdfast.control.record.shapes import problem_with_event
from holdfast.core.run.outcomes import Died, Finished
from holdfast.core.study.events import (
    KINDS,
    Again,
    DonorReplaced,
    RoomsChanged,
    SearchEnded,
    StateTaken,
    StudyEvent,
    StudyExtended,
    StudyOpened,
    StudyStopped,
    TrialAdded,
    TrialCheckpointChanged,
    TrialExited,
    TrialNotStarted,
    TrialReported,
    TrialsArchived,
    TrialStarted,
    from_data,
    to_data,
)
from holdfast.core.study.trial import Trial
from holdfast.errors import HoldfastBug
from holdfast.storage.records import encode

OVER = Trial("a", folder="a").to_data()
FULL: dict[str, Any] = {
    "trial_id": "a",
    "number": 7,
    "config": {"lr": 0.1},
    "params": {"lr": 0.1},
    "tag": "7_lr",
}
PLAIN: list[tuple[StudyEvent, str, str]] = [
    (
        StudyOpened(
            rooms={"n": {"CPU": 2.0}},
            resume_unfinished=False,
            needs={"a": ({"CPU": 1.0},)},
            refused={"b": "no"},
            epoch=3,
        ),
        "study_opened",
        (
            '{"rooms":{"n":{"CPU":2.0}},"resume_unfinished":false,"again":[],'
            '"needs":{"a":[{"CPU":1.0}]},"refused":{"b":"no"},"epoch":3}'
        ),
    ),
    (StudyExtended(9), "study_extended", '{"num_samples":9}'),
    (StudyStopped("why"), "study_stopped", '{"reason":"why"}'),
    (StateTaken("1-2"), "state_taken", '{"mark":"1-2"}'),
    (SearchEnded(), "search_ended", "{}"),
    (RoomsChanged({"n": {"CPU": 1.0}}), "rooms_changed", '{"rooms":{"n":{"CPU":1.0}}}'),
    (
        TrialsArchived(".holdfast/trials/000001-000000.jsonl", ("a", "b")),
        "trials_archived",
        '{"key":".holdfast/trials/000001-000000.jsonl","ids":["a","b"]}',
    ),
    (
        TrialAdded(**FULL, trainable="f", folder="f_a", resources=({"CPU": 1.0},)),
        "trial_added",
        (
            '{"trial_id":"a","number":7,"config":{"lr":0.1},"params":{"lr":0.1},"tag":"7_lr",'
            '"trainable":"f","name":null,"folder":"f_a","resources":[{"CPU":1.0}]}'
        ),
    ),
    (
        TrialAdded(
            **FULL,
            trainable="f",
            folder="f_a",
            resources=(),
            name="mine",
            is_folder_chosen=True,
            refused="too large",
        ),
        "trial_added",
        (
            '{"trial_id":"a","number":7,"config":{"lr":0.1},"params":{"lr":0.1},"tag":"7_lr",'
            '"trainable":"f","name":"mine","folder":"f_a","resources":[],"chosen":true,'
            '"refused":"too large"}'
        ),
    ),
    (
        TrialStarted("a", 2, ("n", "m"), 4, 1.5),
        "trial_started",
        '{"id":"a","attempt":2,"places":["n","m"],"after_step":4,"time":1.5}',
    ),
    (
        TrialNotStarted("a", 2, "no memory"),
        "trial_not_started",
        '{"id":"a","attempt":2,"reason":"no memory"}',
    ),
    (
        TrialReported("a", 2, 5, {"loss": 0.5}),
        "trial_result",
        '{"id":"a","attempt":2,"step":5,"result":{"loss":0.5}}',
    ),
    (
        TrialCheckpointChanged("a", "checkpoint_retired", {"number": 3}),
        "trial_checkpoint",
        '{"id":"a","what":"checkpoint_retired","facts":{"number":3}}',
    ),
    (
        DonorReplaced("a", None, {}, stays=True),
        "trial_donor",
        '{"id":"a","directory":null,"result":{},"stays":true}',
    ),
    (
        TrialExited("a", 2, "done", Finished(0, "n")),
        "trial_exited",
        '{"id":"a","attempt":2,"how":"done","exit":{"kind":"finished","rank":0,"node":"n"}}',
    ),
]


IDS = [f"{kind} {number}" for number, (_, kind, _) in enumerate(PLAIN)]


@pytest.mark.parametrize(("event", "kind", "text"), PLAIN, ids=IDS)
def test_an_event_is_journaled_as_it_always_was(event: StudyEvent, kind: str, text: str) -> None:
    assert event.kind == kind
    assert encode(to_data(event)) == text


def test_every_kind_of_event_is_among_them_and_has_a_shape() -> None:
    assert {type(event) for event, _, _ in PLAIN} == set(get_args(StudyEvent))
    assert {kind for _, kind, _ in PLAIN} == KINDS
    for event, kind, _ in PLAIN:
        data = as_json(event)
        assert problem_with_event(kind, data) is None
        for name in data:  # whoever looks on knows every member
            odd = {**data, name: object()}
            assert problem_with_event(kind, odd) is not None or name == "chosen", (kind, name)


@pytest.mark.parametrize(("event", "kind", "text"), PLAIN, ids=IDS)
def test_an_event_comes_back_from_the_journal(event: StudyEvent, kind: str, text: str) -> None:
    again = from_data(kind, {**as_json(event), "of a later version": 1})

    assert type(again) is type(event)
    assert encode(to_data(again)) == text


def test_trials_that_are_tried_again_come_back_with_their_study() -> None:
    opened = StudyOpened(rooms={}, again=[Again(OVER, from_scratch=True)])
    again = from_data("study_opened", as_json(opened))

    assert isinstance(again, StudyOpened)
    assert [(Trial.from_data(one.trial).trial_id, one.from_scratch) for one in again.again] == [
        ("a", True)
    ]


def test_what_earlier_versions_did_not_write_is_as_it_was_then() -> None:
    rooms: dict[str, Any] = {"rooms": {}, "resume_unfinished": True, "again": []}

    assert from_data("study_opened", rooms) == StudyOpened(rooms={}, again=[])
    assert from_data("study_extended", {}) == StudyExtended(None)
    assert from_data("trial_donor", {"id": "a", "directory": "c"}) == DonorReplaced("a", "c")
    named = {**FULL, "trainable": "f", "folder": "a", "resources": []}
    assert from_data("trial_added", named) == TrialAdded(
        **FULL, trainable="f", folder="a", resources=[]
    )


def test_a_record_that_lacks_something_is_refused() -> None:
    with pytest.raises(KeyError, match="result"):
        from_data("trial_result", {"id": "a", "attempt": 1, "step": 1})
    with pytest.raises(HoldfastBug, match="run_opened"):
        from_data("run_opened", {"epoch": 1})


def test_how_a_process_ended_comes_back_with_its_last_lines() -> None:
    died = Died(0, "n", 1, signal=9, last_lines=("a", "b"))

    assert from_data("trial_exited", as_json(TrialExited("a", 1, "", died))) == TrialExited(
        "a", 1, "", died
    )


def as_json(event: StudyEvent) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(encode(to_data(event)))
    return data

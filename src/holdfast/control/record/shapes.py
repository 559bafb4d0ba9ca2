"""The shapes of the records in a journal, to check those that other programs may have written.

A driver has written the journal of its run itself, or taken over from one that has. Commands that
list other people's folders must neither fail nor print nonsense, whatever is in there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NotRequired, TypedDict

from holdfast.errors import Damaged, HoldfastError
from holdfast.storage.records import Count, Inside, fit, is_too_deep

_Room = dict[str, float]

# ---------------------------------------------------------------------- checkpoints


class _RunOpened(TypedDict):
    epoch: Count
    next_number: Count


class _Begun(TypedDict):
    number: Count
    directory: Inside


class _Committed(_Begun):
    epoch: Count
    attempt: Count
    step: int | None
    metrics: dict[str, Any]
    created: float
    problems: NotRequired[list[str]]
    pins: NotRequired[list[str]]


class _Numbered(TypedDict):
    number: Count


class _Quarantined(_Numbered):
    problems: list[str]


class _Pinned(_Numbered):
    by: str


class _Validated(_Numbered):
    metrics: dict[str, Any]


class _Swept(TypedDict):
    numbers: list[Count]


class _DamageNoted(TypedDict):
    identity: str
    what: str


class _Snapshot(_RunOpened):
    kept: list[_Committed]
    begun: list[tuple[Count, Inside]]
    retired: list[tuple[Count, Inside]]
    names: list[Inside]
    known_damage: dict[str, str]
    closed: bool
    burnt: NotRequired[list[Count]]


# ---------------------------------------------------------------------- attempts


class _Exit(TypedDict):
    kind: str
    rank: Count
    node: str
    error: NotRequired[str]
    trace: NotRequired[str]
    pid: NotRequired[int]
    exit_code: NotRequired[int | None]
    signal: NotRequired[int | None]
    out_of_memory: NotRequired[bool]
    node_lost: NotRequired[bool]
    last_lines: NotRequired[list[str]]
    idle_s: NotRequired[float]
    stacks: NotRequired[str]
    preempted: NotRequired[bool]


_Limits = list[int | None]


class _RunEvent(TypedDict):
    event: str
    attempt: NotRequired[Count]
    limits: NotRequired[_Limits]
    backoff_max_s: NotRequired[float]
    exits: NotRequired[list[_Exit]]
    reason: NotRequired[str]
    ending: NotRequired[str]


class _RunState(TypedDict):
    attempts: Count
    losses: dict[str, Count]
    lost_before: NotRequired[dict[str, Count]]
    checkpoint: int | None
    fruitless: Count
    signature: Any
    repeats: Count
    limits: NotRequired[_Limits]
    backoff_max_s: NotRequired[float]
    waiting: NotRequired[bool]
    stopping: NotRequired[bool]
    then: NotRequired[str | None]
    ending: str | None
    exits: list[_Exit]


# ---------------------------------------------------------------------- trials


class _TrialState(TypedDict):
    trial_id: str
    number: Count
    config: dict[str, Any]
    trainable_name: str
    evaluated_params: dict[str, Any]
    experiment_tag: str
    folder: Inside
    is_resized: bool
    last_result: dict[str, Any]
    step: int
    judged: int
    verdict: str
    doomed: bool
    halted: bool
    save_wanted: bool
    cut_off: bool
    concluded: bool
    error: str | None
    started_at: float | None
    custom_name: str | None
    resources: list[_Room]
    resize_to: NotRequired[list[_Room] | None]
    status: str
    statistics: dict[str, float | tuple[float, float, float, float, Count, list[float]]]
    run: _RunState
    checkpoints: _Snapshot
    donor: list[Any] | None
    former: NotRequired[tuple[dict[str, Any], str, dict[str, Any]] | None]
    places: list[str]


class _Again(TypedDict):
    trial: _TrialState
    from_scratch: bool


class _StudyOpened(TypedDict):
    rooms: dict[str, _Room]
    resume_unfinished: bool
    again: list[_Again]
    needs: NotRequired[dict[str, list[_Room]]]
    refused: NotRequired[dict[str, str]]
    epoch: NotRequired[Count]


class _Extended(TypedDict):
    num_samples: NotRequired[int | None]


class _Stopped(TypedDict):
    reason: str


class _RoomsChanged(TypedDict):
    rooms: dict[str, _Room]


class _Archived(TypedDict):
    key: Inside
    ids: list[str]


class _JudgesState(TypedDict):
    search: dict[str, Any]
    scheduler: dict[str, Any]
    stopper: dict[str, Any]


class _StudyState(TypedDict):
    trials: list[_TrialState]
    finished: list[_TrialState]
    counts: dict[str, int]
    made: Count
    is_search_over: bool
    stopping: str | None
    archives: list[tuple[Inside, Count]]
    rooms: dict[str, _Room]
    last_resources: list[_Room]
    judges: _JudgesState


class _Marked(TypedDict):
    mark: str | int


class _Added(TypedDict):
    trial_id: str
    number: Count
    config: dict[str, Any]
    params: dict[str, Any]
    tag: str
    trainable: str
    folder: Inside
    name: NotRequired[str | None]
    resources: list[_Room]
    refused: NotRequired[str | None]


class _OfTrial(TypedDict):
    id: str


class _Started(_OfTrial):
    attempt: Count
    places: list[str]
    after_step: int
    time: float


class _NotStarted(_OfTrial):
    attempt: Count
    reason: str


class _Reported(_OfTrial):
    attempt: Count
    step: int
    result: dict[str, Any]


class _Saved(_OfTrial):
    what: str
    facts: dict[str, Any]


class _Donated(_OfTrial):
    directory: Inside | None
    result: NotRequired[dict[str, Any]]
    stays: NotRequired[bool]


class _Exited(_OfTrial):
    attempt: Count
    how: str
    exit: _Exit


_SHAPES: dict[str, type[Any]] = {
    "run_opened": _RunOpened,
    "checkpoint_begun": _Begun,
    "checkpoint_committed": _Committed,
    "checkpoint_retired": _Numbered,
    "checkpoint_quarantined": _Quarantined,
    "checkpoint_pinned": _Pinned,
    "checkpoint_unpinned": _Pinned,
    "checkpoint_validated": _Validated,
    "litter_swept": _Swept,
    "journal_damaged": _DamageNoted,
    "record_snapshot": _Snapshot,
    "run": _RunEvent,
    "run_snapshot": _RunState,
    "study_opened": _StudyOpened,
    "study_extended": _Extended,
    "study_stopped": _Stopped,
    "rooms_changed": _RoomsChanged,
    "trials_archived": _Archived,
    "study_state": _StudyState,
    "state_taken": _Marked,
    "trial_added": _Added,
    "trial_started": _Started,
    "trial_not_started": _NotStarted,
    "trial_result": _Reported,
    "trial_checkpoint": _Saved,
    "trial_exited": _Exited,
    "trial_donor": _Donated,
}


def problem_with_event(kind: str, data: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the shape of a record, None if nothing is."""
    problem = _problem_with(data, _SHAPES[kind]) if kind in _SHAPES else None
    if problem is None and kind == "trial_checkpoint":
        return problem_with_event(data["what"], data["facts"])
    return problem


@contextlib.contextmanager
def taken_for_damage(run: str, kind: str, data: Mapping[str, Any]) -> Iterator[None]:
    """Raise `Damaged` in place of other errors from applying a record of the journal of `run`.

    Its checksum is right, so no disk did this. A driver must not go on without the record: later
    ones rest on it.
    """
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        problem = problem_with_event(kind, data) or repr(error)
        raise Damaged(
            f"the journal of {run} has a record of kind {kind!r} that is sealed,"
            f" but not of the form that Holdfast writes: {problem}",
            hint="nothing was changed; put .holdfast/journal back from a copy, or begin a new run"
            " from a checkpoint: resume_from_checkpoint=",
        ) from error


def problem_with_trial(data: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the shape of a stored trial, None if nothing is."""
    return _problem_with(data, _TrialState)


def _problem_with(data: Mapping[str, Any], shape: type[Any]) -> str | None:
    try:
        fit(data, shape)
    except Damaged as error:
        return error.message
    return "it is nested too deeply" if is_too_deep(data) else None

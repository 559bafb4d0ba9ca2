"""Events of a study: a sum type, and its form in the journal.

Every event is believed by `Study.take` and journaled as `to_data` writes it. Names of kinds and
members on storage never change: journals of earlier versions must lead to the same study. What an
earlier version did not write has a default here.

A state of a whole study (`STATE`) is no event: it stands for all that happened before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, assert_never, get_args

from holdfast.core.run.outcomes import WorkerExit
from holdfast.core.run.outcomes import from_data as exit_from_data
from holdfast.core.run.outcomes import to_data as exit_to_data
from holdfast.errors import HoldfastBug

STATE = "study_state"  # the kind of record that holds a whole study

Needs = Sequence[Mapping[str, float]]  # what a trial reserves: one mapping per process

# ---------------------------------------------------------------------- the study


@dataclass(frozen=True, slots=True)
class Again:
    """A trial that was over and is tried again.

    Attributes:
        trial: The trial at rest, as `Trial.to_data` writes it.
        from_scratch: Whether it begins as if it had never run.
    """

    trial: Mapping[str, Any]
    from_scratch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOpened:
    """A driver has begun to drive the study; what ran under another is gone with it.

    Attributes:
        rooms: What there is to be reserved, by node and resource.
        resume_unfinished: Whether trials that are not over go on; else they end.
        again: Trials that were over and are tried again.
        needs: What trials that go on reserve from now on, by id.
        refused: Why trials cannot go on, by id.
        epoch: The lease under which this driver writes.
    """

    kind: ClassVar = "study_opened"

    rooms: Mapping[str, Mapping[str, float]]
    resume_unfinished: bool = True
    again: Sequence[Again] = ()
    needs: Mapping[str, Needs] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class StudyExtended:
    """The study is to take `num_samples` samples in all; None for as many as before."""

    kind: ClassVar = "study_extended"

    num_samples: int | None


@dataclass(frozen=True, slots=True)
class StudyStopped:
    """All trials are to end."""

    kind: ClassVar = "study_stopped"

    reason: str


@dataclass(frozen=True, slots=True)
class SearchEnded:
    """The searcher proposes no more trials."""

    kind: ClassVar = "search_ended"


@dataclass(frozen=True, slots=True)
class RoomsChanged:
    """There are other nodes to place trials on."""

    kind: ClassVar = "rooms_changed"

    rooms: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class TrialsArchived:
    """Trials that are over were put into a part of the archive."""

    kind: ClassVar = "trials_archived"

    key: str
    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class StateTaken:
    """A state of the study was taken at this moment; it is written later, under the same mark."""

    kind: ClassVar = "state_taken"

    mark: str


# ---------------------------------------------------------------------- a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialAdded:
    """There is a new trial.

    Attributes:
        config, params: As `config_to_data` writes them.
        name: What the user's function calls it, None if it is called after its id.
        is_folder_chosen: Whether the user's function has named its folder.
        refused: Why it can never start, None if it can.
    """

    kind: ClassVar = "trial_added"

    trial_id: str
    number: int
    config: Mapping[str, Any]
    params: Mapping[str, Any]
    tag: str
    trainable: str
    folder: str
    resources: Needs
    name: str | None = None
    is_folder_chosen: bool = False
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class TrialStarted:
    """A trial runs.

    Attributes:
        places: The node of each process that it reserves for.
        after_step: The step it goes on from; later results do not count any more.
        time: Seconds since 1970.
    """

    kind: ClassVar = "trial_started"

    trial_id: str
    attempt: int
    places: Sequence[str]
    after_step: int
    time: float


@dataclass(frozen=True, slots=True)
class TrialNotStarted:
    """The engine could not start a trial."""

    kind: ClassVar = "trial_not_started"

    trial_id: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class TrialReported:
    """A trial has reported a result."""

    kind: ClassVar = "trial_result"

    trial_id: str
    attempt: int
    step: int
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrialCheckpointChanged:
    """Something became of a checkpoint of a trial: an event of its `RunRecord`."""

    kind: ClassVar = "trial_checkpoint"

    trial_id: str
    what: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DonorReplaced:
    """The checkpoint that a trial was to take over from another is damaged.

    Attributes:
        directory: The checkpoint of that other trial that it takes over instead, None for none.
        result: What was reported with that one; None if it is not known.
        stays: Whether the trial goes on with its own weights and config.
    """

    kind: ClassVar = "trial_donor"

    trial_id: str
    directory: str | None
    result: Mapping[str, Any] | None = None
    stays: bool = False


@dataclass(frozen=True, slots=True)
class TrialExited:
    """The process of a trial is gone, or has no more to do with it.

    Attributes:
        how: "done" or "paused" if the trial's code says so, else "".
    """

    kind: ClassVar = "trial_exited"

    trial_id: str
    attempt: int
    how: str
    exit: WorkerExit


StudyEvent = (
    TrialReported
    | TrialCheckpointChanged
    | TrialStarted
    | TrialExited
    | TrialAdded
    | TrialNotStarted
    | DonorReplaced
    | StudyOpened
    | StudyExtended
    | StudyStopped
    | SearchEnded
    | RoomsChanged
    | TrialsArchived
    | StateTaken
)
KINDS: frozenset[str] = frozenset(event.kind for event in get_args(StudyEvent))


def to_data(event: StudyEvent) -> dict[str, Any]:
    """Return an event as the journal keeps it."""
    match event:
        case TrialReported(trial_id, attempt, step, result):
            return {"id": trial_id, "attempt": attempt, "step": step, "result": result}
        case TrialCheckpointChanged(trial_id, what, facts):
            return {"id": trial_id, "what": what, "facts": facts}
        case TrialStarted(trial_id, attempt, places, after_step, time):
            started = {"id": trial_id, "attempt": attempt, "places": list(places)}
            return {**started, "after_step": after_step, "time": time}
        case TrialExited(trial_id, attempt, how, ended):
            return {"id": trial_id, "attempt": attempt, "how": how, "exit": exit_to_data(ended)}
        case TrialAdded():
            return _added_to_data(event)
        case TrialNotStarted(trial_id, attempt, reason):
            return {"id": trial_id, "attempt": attempt, "reason": reason}
        case DonorReplaced(trial_id, directory, result, stays):
            reported = {} if result is None else {"result": dict(result)}
            return {"id": trial_id, "directory": directory, **reported, "stays": stays}
        case StudyOpened():
            return {
                "rooms": event.rooms,
                "resume_unfinished": event.resume_unfinished,
                "again": [
                    {"trial": again.trial, "from_scratch": again.from_scratch}
                    for again in event.again
                ],
                "needs": {trial_id: list(needs) for trial_id, needs in event.needs.items()},
                "refused": event.refused,
                "epoch": event.epoch,
            }
        case StudyExtended(num_samples):
            return {"num_samples": num_samples}
        case StudyStopped(reason):
            return {"reason": reason}
        case SearchEnded():
            return {}
        case RoomsChanged(rooms):
            return {"rooms": rooms}
        case TrialsArchived(key, ids):
            return {"key": key, "ids": list(ids)}
        case StateTaken(mark):
            return {"mark": mark}
        case _:
            assert_never(event)


def _added_to_data(event: TrialAdded) -> dict[str, Any]:
    added = {
        "trial_id": event.trial_id,
        "number": event.number,
        "config": event.config,
        "params": event.params,
        "tag": event.tag,
        "trainable": event.trainable,
        "name": event.name,
        "folder": event.folder,
        "resources": list(event.resources),
    }
    if event.is_folder_chosen:
        added["chosen"] = True
    if event.refused is not None:
        added["refused"] = event.refused
    return added


def from_data(kind: str, data: Mapping[str, Any]) -> StudyEvent:
    """Return the event that the journal keeps as a record of `kind`.

    Raises whatever comes of a record that is not one of ours: see `taken_for_damage`.
    """
    match kind:
        case TrialReported.kind:
            return TrialReported(data["id"], data["attempt"], data["step"], data["result"])
        case TrialCheckpointChanged.kind:
            return TrialCheckpointChanged(data["id"], data["what"], data["facts"])
        case TrialStarted.kind:
            return TrialStarted(
                data["id"], data["attempt"], data["places"], data["after_step"], data["time"]
            )
        case TrialExited.kind:
            ended = exit_from_data(data["exit"])
            return TrialExited(data["id"], data["attempt"], data["how"], ended)
        case TrialAdded.kind:
            return _added_from_data(data)
        case TrialNotStarted.kind:
            return TrialNotStarted(data["id"], data["attempt"], data["reason"])
        case DonorReplaced.kind:
            return DonorReplaced(
                data["id"], data["directory"], data.get("result"), data.get("stays", False)
            )
        case StudyOpened.kind:
            return StudyOpened(
                rooms=data["rooms"],
                resume_unfinished=data["resume_unfinished"],
                again=[Again(again["trial"], again["from_scratch"]) for again in data["again"]],
                needs=data.get("needs", {}),
                refused=data.get("refused", {}),
                epoch=data.get("epoch", 0),
            )
        case StudyExtended.kind:
            return StudyExtended(data.get("num_samples"))
        case StudyStopped.kind:
            return StudyStopped(data["reason"])
        case SearchEnded.kind:
            return SearchEnded()
        case RoomsChanged.kind:
            return RoomsChanged(data["rooms"])
        case TrialsArchived.kind:
            return TrialsArchived(data["key"], data["ids"])
        case StateTaken.kind:
            return StateTaken(data["mark"])
        case _:
            raise HoldfastBug(f"nothing of the kind {kind!r} happens in a study")


def _added_from_data(data: Mapping[str, Any]) -> TrialAdded:
    return TrialAdded(
        trial_id=data["trial_id"],
        number=data["number"],
        config=data["config"],
        params=data["params"],
        tag=data["tag"],
        trainable=data["trainable"],
        folder=data["folder"],
        resources=data["resources"],
        name=data.get("name"),
        is_folder_chosen=bool(data.get("chosen")),
        refused=data.get("refused"),
    )

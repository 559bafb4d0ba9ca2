"""Converts the run machine and its events to journal records, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from holdfast.core.run.budget import Budget
from holdfast.core.run.machine import (
    Active,
    CheckpointCommitted,
    DriverStarted,
    Ending,
    Event,
    GroupEnded,
    GroupNotStarted,
    GroupPaused,
    Idle,
    Over,
    Phase,
    RestartWanted,
    Run,
    StartWanted,
    Stopping,
    StopRequested,
    advance,
)
from holdfast.core.run.outcomes import Blame, from_data, to_data
from holdfast.errors import FormatTooNew, HoldfastBug

KIND = "run"
SNAPSHOT = "run_snapshot"


class RunHistory:
    """The state of a run, rebuilt from its journal; an `Account` of an open run."""

    def __init__(self) -> None:
        self.run = Run()

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Apply one record of the journal."""
        if kind == KIND:
            self.run = advance(self.run, event_of(data)).run
        elif kind == "checkpoint_committed":
            committed = CheckpointCommitted(data["attempt"], data["number"])
            self.run = advance(self.run, committed).run
        elif kind == SNAPSHOT:
            self.run = run_of(data)

    def to_events(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the records that lead to this state."""
        return [(SNAPSHOT, run_to_data(self.run))]


def run_to_data(run: Run) -> dict[str, Any]:
    """Return a run as plain data."""
    over = run.phase if isinstance(run.phase, Over) else None
    stopping = run.phase if isinstance(run.phase, Stopping) else None
    budget = run.budget
    return {
        "attempts": run.attempts,
        "losses": {str(kind): count for kind, count in run.losses.items()},
        "lost_before": {str(kind): n for kind, n in run.lost_before.items()},
        "checkpoint": run.checkpoint,
        "fruitless": run.fruitless,
        "signature": run.signature,
        "repeats": run.repeats,
        "limits": _limits(budget),
        "backoff_max_s": run.backoff_max_s,
        "waiting": isinstance(run.phase, Idle),
        "stopping": stopping is not None,
        "then": str(stopping.then) if stopping and stopping.then else None,
        "ending": str(over.ending) if over else None,
        "exits": [to_data(ended) for ended in over.exits] if over else [],
    }


def run_of(data: Mapping[str, Any]) -> Run:
    """Return the run that `run_to_data` was given."""
    phase: Phase = Idle()
    if data["ending"]:
        exits = tuple(map(from_data, data["exits"]))
        phase = Over(Ending(data["ending"]), exits)
    elif data.get("stopping"):
        then = Ending(data["then"]) if data["then"] else None
        phase = Stopping(data["attempts"], then)
    elif data["attempts"] and not data.get("waiting"):
        phase = Active(data["attempts"])
    return Run(
        phase=phase,
        attempts=data["attempts"],
        budget=_budget(data.get("limits", (None, None, None))),
        backoff_max_s=data.get("backoff_max_s", 30.0),
        losses={Blame(kind): count for kind, count in data["losses"].items()},
        lost_before={Blame(kind): n for kind, n in data.get("lost_before", {}).items()},
        checkpoint=data["checkpoint"],
        fruitless=data["fruitless"],
        signature=data["signature"],
        repeats=data["repeats"],
    )


def _limits(budget: Budget) -> list[int | None]:
    return [budget.failures, budget.preemptions, budget.starts, budget.starts_alike]


def _budget(limits: Sequence[int | None]) -> Budget:
    failures, preemptions, starts, *rest = limits  # the last is missing in older records
    alike = rest[0] if rest else None
    return Budget(failures=failures, preemptions=preemptions, starts=starts, starts_alike=alike)


def data_of(event: Event) -> dict[str, Any]:
    """Return an event as the journal keeps it."""
    match event:
        case DriverStarted(budget, backoff_max_s):
            limits = _limits(budget)
            return {"event": "driver_started", "limits": limits, "backoff_max_s": backoff_max_s}
        case CheckpointCommitted():
            raise HoldfastBug("a commit has a record of its own in the journal")
        case GroupEnded(attempt, exits):
            ends = [to_data(ended) for ended in exits]
            return {"event": "group_ended", "attempt": attempt, "exits": ends}
        case GroupNotStarted(attempt, reason):
            return {"event": "group_not_started", "attempt": attempt, "reason": reason}
        case RestartWanted(attempt, reason):
            return {"event": "restart_wanted", "attempt": attempt, "reason": reason}
        case StopRequested(ending):
            return {"event": "stop_requested", "ending": str(ending)}
        case GroupPaused() | StartWanted():
            raise HoldfastBug("only trials pause, and a study has its own records of them")
        case _:
            assert_never(event)


def event_of(data: Mapping[str, Any]) -> Event:
    """Return the event that `data_of` was given."""
    match data["event"]:
        case "driver_started":
            return DriverStarted(_budget(data["limits"]), data["backoff_max_s"])
        case "group_ended":
            return GroupEnded(data["attempt"], tuple(map(from_data, data["exits"])))
        case "group_not_started":
            return GroupNotStarted(data["attempt"], data["reason"])
        case "restart_wanted":
            return RestartWanted(data["attempt"], data["reason"])
        case "stop_requested":
            return StopRequested(Ending(data["ending"]))
        case unknown:
            raise FormatTooNew(
                f"the journal has an event {unknown!r}, which this version does not know",
                hint="resume the run with the version of Holdfast that wrote it, or a newer one",
            )

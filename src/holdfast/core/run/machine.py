"""Decides when a group of workers is started and stopped, and when a run is over: `advance`.

No clock, no engine, no store: events come in, actions go out. A group is one attempt's workers;
attempts are numbered from 1 and never reused. An attempt is over only once its group is confirmed
gone, so that there is never more than one group.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from holdfast.core.run.budget import Budget, blame
from holdfast.core.run.outcomes import Blame, Finished, WorkerExit
from holdfast.core.run.signature import likeness, likeness_of, signature_of
from holdfast.errors import HoldfastBug

BACKOFF_FIRST_S = 0.1


class Ending(enum.StrEnum):
    """How a run came out."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    PREEMPTED = "preempted"  # this driver's node goes away; the same command resumes elsewhere


# ---------------------------------------------------------------------- phases


@dataclass(frozen=True, slots=True)
class Idle:
    """No group runs; the last one, if any, is confirmed gone."""


@dataclass(frozen=True, slots=True)
class Active:
    """The group of `attempt` is wanted."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Stopping:
    """The group of `attempt` is being stopped, and its end is not confirmed yet."""

    attempt: int
    then: Ending | None  # None: another attempt follows


@dataclass(frozen=True, slots=True)
class Over:
    """The run is over and nothing of it runs any more."""

    ending: Ending
    exits: tuple[WorkerExit, ...] = ()


Phase: TypeAlias = Idle | Active | Stopping | Over


# ---------------------------------------------------------------------- events and actions


@dataclass(frozen=True, slots=True)
class DriverStarted:
    """A driver has opened the run, for the first time or after another died."""

    budget: Budget
    backoff_max_s: float = 30.0


@dataclass(frozen=True, slots=True)
class CheckpointCommitted:
    """A checkpoint exists from here on."""

    attempt: int
    number: int


@dataclass(frozen=True, slots=True)
class GroupEnded:
    """No worker of the attempt runs any more."""

    attempt: int
    exits: tuple[WorkerExit, ...]


@dataclass(frozen=True, slots=True)
class GroupNotStarted:
    """The attempt's group could not be started, and nothing of it runs."""

    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class RestartWanted:
    """The group must be stopped and started again, for a reason that is not a failure."""

    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class GroupPaused:
    """The attempt's group has ended because it was paused; another attempt will follow."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StartWanted:
    """An idle run is to start its next attempt."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The run is to end, from outside."""

    ending: Ending


Event: TypeAlias = (
    DriverStarted
    | CheckpointCommitted
    | GroupEnded
    | GroupNotStarted
    | RestartWanted
    | GroupPaused
    | StartWanted
    | StopRequested
)


@dataclass(frozen=True, slots=True)
class StartGroup:
    """Start the workers of an attempt, `after_s` from now, with the newest good checkpoint."""

    attempt: int
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StopGroup:
    """Stop the workers of an attempt; `GroupEnded` follows."""

    attempt: int


Action: TypeAlias = StartGroup | StopGroup


# ---------------------------------------------------------------------- the machine


@dataclass(frozen=True, slots=True)
class Run:
    """The state of a run: everything that decides what happens next.

    Attributes:
        losses: Groups lost since this driver started, by cause; the budget limits these.
        lost_before: Groups lost under earlier drivers, for the record.
        checkpoint: The number of the last checkpoint, None if there is none.
        fruitless: Losses in a row without a new checkpoint in between.
        signature: What the last loss looked like, to tell a bug from bad luck.
        repeats: How often in a row the last loss looked the same at the same place.
    """

    phase: Phase = Idle()
    attempts: int = 0
    budget: Budget = field(default_factory=Budget)
    backoff_max_s: float = 30.0
    losses: Mapping[Blame, int] = field(default_factory=dict)
    lost_before: Mapping[Blame, int] = field(default_factory=dict)
    checkpoint: int | None = None
    fruitless: int = 0
    signature: str | None = None
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The next state of a run, and the actions to perform."""

    run: Run
    actions: tuple[Action, ...] = ()


def advance(run: Run, event: Event) -> Step:
    """Return the state of `run` after `event`, and the actions to perform."""
    match run.phase, event:
        case _, DriverStarted(budget, backoff_max_s):
            return _driver_started(run, budget, backoff_max_s)
        case Over(), _:
            return Step(run)  # endings are final until a driver starts anew
        case ((Active(now) | Stopping(now)), CheckpointCommitted(attempt, number)) if (
            attempt == now
        ):
            return Step(replace(run, checkpoint=number, fruitless=0))
        case Active(now), GroupEnded(attempt, exits) if attempt == now:
            return _group_ended(run, exits)
        case Active(now), GroupNotStarted(attempt, reason) if attempt == now:
            return _lost(run, Blame.START, likeness(reason), ())
        case Stopping(now, then), GroupEnded(attempt, exits) if attempt == now:
            return _stopped(run, then, exits)
        case Stopping(now, then), GroupNotStarted(attempt) if attempt == now:
            return _stopped(run, then, ())
        case ((Active(now) | Stopping(now)), GroupPaused(attempt)) if attempt == now:
            return Step(replace(run, phase=Idle(), fruitless=0))
        case Idle(), StartWanted():
            return _start(run)
        case Active(now), RestartWanted(attempt) if attempt == now:
            return Step(replace(run, phase=Stopping(now, None)), (StopGroup(now),))
        case Active(attempt), StopRequested(ending):
            return Step(replace(run, phase=Stopping(attempt, ending)), (StopGroup(attempt),))
        case Stopping(attempt), StopRequested(ending):
            return Step(replace(run, phase=Stopping(attempt, ending)))
        case Idle(), StopRequested(ending):
            return Step(replace(run, phase=Over(ending)))
        case _, (
            CheckpointCommitted()
            | GroupEnded()
            | GroupNotStarted()
            | RestartWanted()
            | GroupPaused()
            | StartWanted()
        ):
            return Step(run)  # stale: about an attempt that is not the current one
        case _:
            raise HoldfastBug(f"no rule for {event} while {run.phase}")


def _driver_started(run: Run, budget: Budget, backoff_max_s: float) -> Step:
    """Begin a new attempt. The group of the last driver is gone with it and not charged.

    Each launch has a full budget: with it the user asks to try again, and the death of a driver
    must not make the next failure of a worker the last one.
    """
    return _start(renewed(run, budget, backoff_max_s))


def renewed(run: Run, budget: Budget, backoff_max_s: float) -> Run:
    """Return an idle run with a full budget; its losses so far move to `lost_before`."""
    kinds = {*run.losses, *run.lost_before}
    total = {kind: run.lost_before.get(kind, 0) + run.losses.get(kind, 0) for kind in kinds}
    return replace(
        run,
        phase=Idle(),
        budget=budget,
        backoff_max_s=backoff_max_s,
        losses={},
        lost_before=total,
        fruitless=0,
        repeats=0,
    )


class UsualCourse:
    """The states of a run that waits, is active once, and succeeds, as nearly all trials do.

    There may be very many trials, so they share these objects.
    """

    def __init__(self, budget: Budget, backoff_max_s: float) -> None:
        self.waiting = renewed(Run(), budget, backoff_max_s)
        self._active = advance(self.waiting, StartWanted()).run
        self._over = replace(self._active, phase=Over(Ending.SUCCEEDED))

    def started(self, run: Run) -> Run:
        """Return `run` made active, if it was not."""
        if run is self.waiting:
            return self._active
        return run if isinstance(run.phase, Active) else advance(run, StartWanted()).run

    def ended(self, run: Run) -> Run:
        """Return `run` made over, with success if it was not over."""
        if run is self._active:
            return self._over
        return run if isinstance(run.phase, Over) else replace(run, phase=Over(Ending.SUCCEEDED))


def _start(run: Run) -> Step:
    attempt = run.attempts + 1
    started = replace(run, phase=Active(attempt), attempts=attempt)
    return Step(started, (StartGroup(attempt, _pause_s(run)),))


def _pause_s(run: Run) -> float:
    """Return how long to wait: 0 unless losses follow each other without progress."""
    if run.fruitless <= 1:
        return 0.0
    return min(run.backoff_max_s, BACKOFF_FIRST_S * 2.0 ** min(run.fruitless - 2, 30))


def _group_ended(run: Run, exits: tuple[WorkerExit, ...]) -> Step:
    assert exits, "a group cannot end without a single worker's end"
    if all(isinstance(ended, Finished) for ended in exits):
        return Step(replace(run, phase=Over(Ending.SUCCEEDED, exits)))
    return _lost(run, blame(exits), likeness_of(exits), exits)


def _lost(run: Run, blamed: Blame, looks: str, exits: tuple[WorkerExit, ...]) -> Step:
    losses = {**run.losses, blamed: run.losses.get(blamed, 0) + 1}
    signature = signature_of(blamed, looks, run.checkpoint)
    charged = replace(
        run,
        losses=losses,
        fruitless=run.fruitless + 1,
        signature=signature,
        repeats=run.repeats + 1 if signature == run.signature else 1,
    )
    if run.budget.allows(losses, blamed) and not _cannot_start(charged, blamed):
        return _start(charged)
    return Step(replace(charged, phase=Over(Ending.FAILED, exits)))


def _cannot_start(run: Run, blamed: Blame) -> bool:
    """Whether to conclude that no group of this run will ever come up."""
    limit = run.budget.starts_alike
    is_alike = limit is not None and run.repeats >= limit
    return blamed is Blame.START and is_alike and not has_run(replace(run, phase=Idle()))


def has_run(run: Run) -> bool:
    """Whether the group of an earlier attempt came up."""
    failed = run.losses.get(Blame.START, 0) + run.lost_before.get(Blame.START, 0)
    return run.attempts - isinstance(run.phase, Active) > failed


def _stopped(run: Run, then: Ending | None, exits: tuple[WorkerExit, ...]) -> Step:
    is_done = exits and all(isinstance(ended, Finished) for ended in exits)
    if is_done and then is not Ending.PREEMPTED:  # preempted workers may return early
        return Step(replace(run, phase=Over(Ending.SUCCEEDED, exits)))
    if then is None:
        return _start(replace(run, phase=Idle()))
    return Step(replace(run, phase=Over(then, exits)))

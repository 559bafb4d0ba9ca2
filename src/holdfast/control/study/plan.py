"""What the controller of a study is given: its plan, its observers, its files of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from holdfast.checkpoint import Checkpoint
from holdfast.core.checkpoint.retention import Retention
from holdfast.core.study.events import SearchEnded, TrialAdded
from holdfast.core.study.trial import Trial, Variant

# A trial of the study's `trial_type`, which may be a subclass that a layer above knows.
AnyTrial: TypeAlias = Any
Rows = Sequence[tuple[int, dict[str, Any], Variant]]  # step, result, config of the result


class Proposer(Protocol):
    """Makes trials out of what the searcher proposes."""

    def __call__(self) -> TrialAdded | SearchEnded | None:
        """Return a new trial, None if there is none now, or that there will be no more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """What becomes of the trials that an earlier launch left.

    Attributes:
        finished: Whether finished trials go on too, because they may do more steps now.
        num_samples: How many samples the study is to take in all from now on, None as before.
    """

    unfinished: bool = True
    errored: bool = False
    errored_from_scratch: bool = False
    finished: bool = False
    num_samples: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """What a study is to do in this launch; nothing of it is stored.

    Attributes:
        program: What the process of every trial runs: a packed `Task`.
        propose: Makes the next trial.
        needs_of: Returns what a trial that goes on reserves from now on.
        config_of: Returns the config for a trial's process, with objects in the place of marks.
        hang_timeout_s: After how long without a report a trial counts as hung; None to learn it.
        again: The call that tries failed trials again, for messages.
        notice_s: How long this machine is expected to stay once it is announced to go.
        reuses: Whether a process does one trial after the other.
        max_concurrent: How many trials may run at once, None for as many as there is room for.
        log_folder: Where logs go if the study's own storage is far away.
    """

    program: bytes
    propose: Proposer
    config_of: Callable[[Trial], Mapping[str, Any]]
    needs_of: Callable[[Trial], Sequence[Mapping[str, float]]]
    retention: Retention
    log_folder: str
    environment: Mapping[str, str] = field(default_factory=dict)
    max_concurrent: int | None = None
    reuses: bool = False
    hang_timeout_s: float | None = None
    notice_s: float = 25.0
    again: str = "restore the study"
    first_checkpoint: Checkpoint | None = None
    resumption: Resumption = field(default_factory=Resumption)


class StudyObserver:
    """Is told what happens in a study, in the driver's process and in the order it happens.

    Subclasses override what they want to hear of. What they raise is logged and changes nothing.
    """

    def resumed(self, rows: Mapping[str, Rows], trials: Mapping[str, AnyTrial]) -> None:
        """The study goes on: these results are in its journal, and perhaps in no file yet."""

    def trial_added(self, trial: AnyTrial) -> None:
        """There is a new trial."""

    def trial_started(self, trial: AnyTrial, after_step: int) -> None:
        """A trial runs; what it had reported after `after_step` does not count any more."""

    def trial_result(self, trial: AnyTrial, result: dict[str, Any]) -> None:
        """A trial has reported."""

    def trial_saved(self, trial: AnyTrial, checkpoint: Checkpoint) -> None:
        """A checkpoint of a trial is durable."""

    def trial_paused(self, trial: AnyTrial) -> None:
        """A trial waits, without a process."""

    def trial_lost(self, trial: AnyTrial, card: str, *, is_last: bool) -> None:
        """A trial's process is gone, and not because it was done; `card` is for people."""

    def trial_ended(self, trial: AnyTrial) -> None:
        """A trial is over."""

    def turned(self, *, is_over: bool) -> None:
        """Something may have happened; called often."""


class ResultFiles(Protocol):
    """Files that keep results; the journal drops a result once it is durable there.

    What a method raises is logged, and the journal keeps its results.
    """

    def settle(self) -> Callable[[], bool]:
        """Begin to make durable what was reported so far, while the study goes on.

        Returns a function that says whether it is; it is called again and again.
        """
        ...

    def flush(self) -> bool:
        """Make durable what was reported so far; return whether it is."""
        ...

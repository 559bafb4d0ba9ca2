"""A trial as everybody in a study sees it: schedulers, searchers, callbacks, reporters.

It is data that only the study changes; what others want to happen to it, they ask for.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.core.metric_history import flattened
from holdfast.core.record import RunRecord
from holdfast.core.run_history import run_of, run_to_data
from holdfast.core.run_machine import Run

RECENT = (5, 10)  # over how many results the averages go that are kept beside the last


class Status(enum.StrEnum):
    """Where a trial stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"


OVER = (Status.TERMINATED, Status.ERROR)


@dataclass(slots=True)
class Statistics:
    """What is remembered of all values of one metric, in a few numbers."""

    max: float
    min: float
    last: float
    sum: float = 0.0
    count: int = 0
    recent: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, value: float) -> Statistics:
        """Return what is remembered after one value."""
        found = cls(value, value, value)
        found.add(value)
        return found

    def add(self, value: float) -> None:
        """Take in one more value; what is not a number counts as the last one only."""
        self.last = value
        if value == value:  # not NaN
            self.max = value if self.max != self.max else max(self.max, value)
            self.min = value if self.min != self.min else min(self.min, value)
            self.sum += value
            self.count += 1
            self.recent = [*self.recent[1 - max(RECENT) :], value]

    def summary(self) -> dict[str, float]:
        """Return the statistics by the names that users ask for them."""
        nan = float("nan")
        found = {
            "max": self.max,
            "min": self.min,
            "avg": self.sum / self.count if self.count else nan,
            "last": self.last,
        }
        for length in RECENT:
            newest = self.recent[-length:]
            found[f"last-{length}-avg"] = sum(newest) / len(newest) if newest else nan
        return found


@dataclass(frozen=True, slots=True)
class Reply:
    """What a trial is told after a result: CONTINUE, PAUSE or STOP, and whether to save first."""

    action: str
    save: bool = False


@dataclass(eq=False)
class Trial:
    """One configuration in a study.

    Attributes:
        number: Its place in the order in which trials were made, from 0.
        config: What its trainable is called with.
        evaluated_params: Those values of `config` that were searched for, by path, `a/b` if nested.
        experiment_tag: The number and those values, as a short text.
        folder: Where its files are, below the study's folder.
        resources: What it reserves: one mapping per process, the trainable's own first.
        last_result: The newest result, {} before the first.
        step: How many results it has come to, counted on from the checkpoint it carried on from.
        judged: The highest step that was judged. A step is judged once: when it is done again after
            a loss, what was decided then still holds.
        verdict: What was decided at that step.
        doomed: Whether it is to end without being asked.
        halted: Whether its process is to be taken away, and it is to wait.
        save_wanted: Whether it is to save itself before it goes on.
        cut_off: Whether it ran when a driver died; such trials go first when another comes.
        concluded: Whether scheduler and searcher know that no more results come.
        places: The nodes of what it has reserved while it runs.
        statistics: What is remembered of every metric, by its path.
        run: Its attempts and losses; a trial is a run of one worker.
        checkpoints: Those it has saved.
        donor: What it starts from while it has no checkpoint of its own since: the folder of
            another trial, and that of its checkpoint therein.
        started_at: When it first ran, seconds since 1970, None before.
    """

    PENDING: ClassVar[str] = Status.PENDING
    RUNNING: ClassVar[str] = Status.RUNNING
    PAUSED: ClassVar[str] = Status.PAUSED
    TERMINATED: ClassVar[str] = Status.TERMINATED
    ERROR: ClassVar[str] = Status.ERROR

    trial_id: str
    number: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    trainable_name: str = "trainable"
    evaluated_params: dict[str, Any] = field(default_factory=dict)
    experiment_tag: str = ""
    folder: str = ""
    resources: tuple[Mapping[str, float], ...] = ({"CPU": 1.0},)
    status: Status = Status.PENDING
    last_result: dict[str, Any] = field(default_factory=dict)
    step: int = 0
    judged: int = 0
    verdict: str = "CONTINUE"
    doomed: bool = False
    halted: bool = False
    save_wanted: bool = False
    cut_off: bool = False
    concluded: bool = False
    places: tuple[str, ...] = ()
    statistics: dict[str, Statistics] = field(default_factory=dict)
    run: Run = field(default_factory=Run)
    checkpoints: RunRecord = field(default_factory=RunRecord)
    donor: tuple[str, str] | None = None
    error: str | None = None
    started_at: float | None = None
    custom_name: str | None = None

    def is_finished(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in OVER

    @property
    def num_failures(self) -> int:
        """How often it was lost, since the study was last launched."""
        return sum(self.run.losses.values())

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """The statistics of every metric, by its path."""
        return {name: found.summary() for name, found in self.statistics.items()}

    def observe(self, step: int, result: dict[str, Any]) -> None:
        """Take in a new result."""
        self.last_result, self.step = result, step
        for name, value in flattened({k: v for k, v in result.items() if k != "config"}).items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if name in self.statistics:
                self.statistics[name].add(float(value))
            else:
                self.statistics[name] = Statistics.of(float(value))

    def reply(self) -> Reply:
        """Return what it is to do after the step it has come to."""
        is_judged = self.step >= self.judged
        if self.doomed or (is_judged and self.verdict == "STOP"):
            return Reply("STOP")
        if self.halted:
            return Reply("PAUSE", save=self.save_wanted)
        if is_judged and self.verdict == "PAUSE":
            return Reply("PAUSE", save=True)
        return Reply("CONTINUE", save=is_judged and self.save_wanted)

    def can_wait(self) -> bool:
        """Whether what it is paused for can go on later without its process."""
        return not self.reply().save or self.donor is not None or self.saved_step() >= self.judged

    def saved_step(self) -> int:
        """Return the step of the newest checkpoint that can be used, 0 if there is none."""
        return next((kept.step or 0 for kept in self.checkpoints.usable()), 0)

    def to_data(self) -> dict[str, Any]:
        """Return all that is to be known of it, as plain data."""
        [(_, record)] = self.checkpoints.to_events()
        data = {name: getattr(self, name) for name in _PLAIN}
        return data | {
            "resources": [dict(one) for one in self.resources],
            "status": str(self.status),
            "statistics": {
                name: [one.max, one.min, one.last, one.sum, one.count, one.recent]
                for name, one in self.statistics.items()
            },
            "run": run_to_data(self.run),
            "checkpoints": record,
            "donor": None if self.donor is None else list(self.donor),
            "places": list(self.places),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Trial:
        """Return the trial that `to_data` was given."""
        trial = cls(**{name: data[name] for name in _PLAIN})
        trial.resources = tuple(data["resources"])
        trial.status = Status(data["status"])
        trial.statistics = {name: Statistics(*one) for name, one in data["statistics"].items()}
        trial.run = run_of(data["run"])
        trial.checkpoints.apply("record_snapshot", data["checkpoints"])
        if data["donor"] is not None:
            folder, directory = data["donor"]
            trial.donor = folder, directory
        trial.places = tuple(data["places"])
        return trial

    def __str__(self) -> str:
        return self.custom_name or f"{self.trainable_name}_{self.trial_id}"

    def __repr__(self) -> str:
        return f"Trial({self}, {self.status})"


_PLAIN = (
    "trial_id",
    "number",
    "config",
    "trainable_name",
    "evaluated_params",
    "experiment_tag",
    "folder",
    "last_result",
    "step",
    "judged",
    "verdict",
    "doomed",
    "halted",
    "save_wanted",
    "cut_off",
    "concluded",
    "error",
    "started_at",
    "custom_name",
)

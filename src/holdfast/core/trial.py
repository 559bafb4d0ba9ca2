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
        if value == value:  # noqa: PLR0124  # not NaN
            self.max = value if self.max != self.max else max(self.max, value)  # noqa: PLR0124
            self.min = value if self.min != self.min else min(self.min, value)  # noqa: PLR0124
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
        iteration: `training_iteration` of that result.
        statistics: What is remembered of every metric, by its path.
        run: Its attempts and losses; a trial is a run of one worker.
        checkpoints: Those it has saved.
        donor: From where it starts if it has no checkpoint of its own since: the id and the folder
            of another trial's.
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
    iteration: int = 0
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

    def observe(self, result: dict[str, Any]) -> None:
        """Take in a new result."""
        self.last_result = result
        self.iteration = int(result.get("training_iteration", self.iteration))
        for name, value in flattened({k: v for k, v in result.items() if k != "config"}).items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if name in self.statistics:
                self.statistics[name].add(float(value))
            else:
                self.statistics[name] = Statistics.of(float(value))

    def __str__(self) -> str:
        return self.custom_name or f"{self.trainable_name}_{self.trial_id}"

    def __repr__(self) -> str:
        return f"Trial({self}, {self.status})"

"""What results are made of: a trial as its study has kept it, whether or not it still runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.checkpoint import Checkpoint
from holdfast.core.trial import Statistics, Status
from holdfast.tune.errors import TuneError


class TrialSummary(Protocol):
    """One trial for those who look at results.

    There may be very many, so whatever takes reading is read when it is asked for.
    """

    @property
    def trial_id(self) -> str: ...

    @property
    def status(self) -> Status: ...

    @property
    def config(self) -> dict[str, Any]: ...

    @property
    def last_result(self) -> dict[str, Any]:
        """The newest result, {} if there is none."""
        ...

    @property
    def statistics(self) -> Mapping[str, Statistics]:
        """What is remembered of every metric, by its path."""
        ...

    @property
    def folder(self) -> str:
        """Where its files are, below the study's folder."""
        ...

    @property
    def error(self) -> Exception | str | None:
        """Why it failed, None if it did not."""
        ...

    @property
    def checkpoints(self) -> Sequence[tuple[Checkpoint, dict[str, Any]]]:
        """All that are kept, with their metrics, from worst to best."""
        ...

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest one."""
        ...


@dataclass
class StoredTrial:
    """A trial that does not run here: all that is known of it, as plain values."""

    trial_id: str
    status: Status = Status.TERMINATED
    config: dict[str, Any] = field(default_factory=dict)
    last_result: dict[str, Any] = field(default_factory=dict)
    statistics: dict[str, Statistics] = field(default_factory=dict, repr=False)
    folder: str = ""
    error: Exception | str | None = None
    checkpoints: Sequence[tuple[Checkpoint, dict[str, Any]]] = field(default=(), repr=False)
    checkpoint: Checkpoint | None = None
    evaluated_params: dict[str, Any] = field(default_factory=dict, repr=False)
    experiment_tag: str = ""

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """The statistics of every metric, by its path."""
        return {name: found.summary() for name, found in self.statistics.items()}

    def __str__(self) -> str:
        return self.folder or self.trial_id


def error_of(trial: TrialSummary) -> Exception | None:
    """Return why a trial failed as something that can be raised; None if it did not."""
    if isinstance(trial.error, Exception):
        return trial.error
    if trial.error is not None:
        return TuneError(trial.error.strip() or f"trial {trial.trial_id} failed")
    if trial.status is Status.ERROR:
        return TuneError(f"trial {trial.trial_id} failed")
    return None

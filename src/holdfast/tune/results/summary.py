"""Summaries of trials, which results are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.checkpoint import Checkpoint
from holdfast.core.study.statistics import Statistics
from holdfast.core.study.trial import OVER, Status
from holdfast.tune.errors import TuneError
from holdfast.tune.result import EXPR_ERROR_FILE


class TrialSummary(Protocol):
    """A trial as results need it.

    A study can have very many, so whatever has to be read is read when it is asked for.
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
        """The statistics of every metric, by its path."""
        ...

    @property
    def folder(self) -> str:
        """Where its files are, relative to the study's folder."""
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

    @property
    def trainable_name(self) -> str: ...

    @property
    def num_failures(self) -> int:
        """How often it was lost, since the study was last launched."""
        ...

    @property
    def start_time(self) -> float | None:
        """When it first ran, seconds since 1970; None if that is not known."""
        ...

    @property
    def error_file(self) -> str | None:
        """The local file with its failures; None if it never failed or its files are elsewhere."""
        ...

    def has_checkpoint(self) -> bool: ...


@dataclass(repr=False)
class StoredTrial:
    """A trial that does not run here, as plain values.

    Attributes:
        name: '' for its folder's name.
        path: Where its files are, None if that is not known.
        local_path: The folder of its files on this machine, None if they are elsewhere.
        trainable_name: '' if that is not known.
        num_failures: How often it was lost, since the study was last launched.
        start_time: When it first ran, seconds since 1970; None if that is not known.
    """

    trial_id: str
    status: Status = Status.TERMINATED
    config: dict[str, Any] = field(default_factory=dict)
    last_result: dict[str, Any] = field(default_factory=dict)
    statistics: dict[str, Statistics] = field(default_factory=dict)
    folder: str = ""
    error: Exception | str | None = None
    checkpoints: Sequence[tuple[Checkpoint, dict[str, Any]]] = ()
    checkpoint: Checkpoint | None = None
    evaluated_params: dict[str, Any] = field(default_factory=dict)
    experiment_tag: str = ""
    name: str = ""
    path: str | None = None
    local_path: str | None = None
    trainable_name: str = ""
    num_failures: int = 0
    start_time: float | None = None

    @property
    def logdir(self) -> str | None:
        """The same as `local_path`, by its name before Ray 2.7."""
        return self.local_path

    @property
    def error_file(self) -> str | None:
        """The local file with its failures; None if it never failed or its files are elsewhere."""
        if self.local_path is None or not (self.error or self.num_failures):
            return None
        return f"{self.local_path}/{EXPR_ERROR_FILE}"

    def has_checkpoint(self) -> bool:
        """Whether a checkpoint of it is kept."""
        return self.checkpoint is not None

    def is_finished(self) -> bool:
        """Whether it is over."""
        return self.status in OVER

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """The statistics of every metric, by its path."""
        return {name: statistics.summary() for name, statistics in self.statistics.items()}

    def __str__(self) -> str:
        return self.name or self.folder or self.trial_id

    def __repr__(self) -> str:
        return f"Trial({self}, {self.status})"


def error_of(trial: TrialSummary) -> Exception | None:
    """Return why a trial failed as an exception; None if it did not."""
    if isinstance(trial.error, Exception):
        return trial.error
    if trial.error is not None:
        return TuneError(trial.error.strip() or f"trial {trial.trial_id} failed")
    if trial.status is Status.ERROR:
        return TuneError(f"trial {trial.trial_id} failed")
    return None

"""`Result`: a run's metrics, its newest and best checkpoints, and its error."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.api.checks import this_is
from holdfast.api.deprecated import warn_user
from holdfast.checkpoint import Checkpoint
from holdfast.control.metrics.reader import read_latest, read_metric_rows
from holdfast.control.record.identity import must_be_kind
from holdfast.control.record.run_view import look
from holdfast.core.checkpoint.record import Kept, RunRecord
from holdfast.core.checkpoint.retention import Retention, ranked, score_of
from holdfast.core.metric_history import Row, flattened
from holdfast.core.run.machine import Ending, Over, Run
from holdfast.core.run.outcomes import Raised
from holdfast.errors import ConfigError, StoreError
from holdfast.storage.base import Store
from holdfast.storage.foreign.arrow import filesystem_of, path_of
from holdfast.storage.locate import describe, open_store, reopen
from holdfast.worker.job import unpack_value

log = logging.getLogger(__name__)


@dataclass
class Result:
    """The outcome of a run, or its state so far.

    Attributes:
        metrics: The last ones reported, with those that validation of their checkpoint added; None
            if there were none.
        checkpoint: The newest one, None if there is none.
        error: Why the run failed, None if it did not.
        path: The run's folder, without a scheme.
        best_checkpoints: All that are kept, with their metrics, from worst to best.
        return_value: What rank 0 returned, if the run succeeded.
        config: The `train_loop_config` of the run, None if it is not known.
        name: The run's name.
    """

    metrics: dict[str, Any] | None
    checkpoint: Checkpoint | None
    error: Exception | None = None
    path: str | None = None
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] = field(default_factory=list)
    return_value: Any = None
    config: dict[str, Any] | None = None
    name: str | None = None
    _filesystem: Any = field(default=None, repr=False, compare=False)
    _history: _HistoryAt | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_path(
        cls, path: str | os.PathLike[str], storage_filesystem: Any | None = None
    ) -> Result:
        """Return the result of the run in a folder; needs none of its code, and writes nothing.

        If the run failed, `error` says how, with the tracebacks of its workers as text. Raises
        `RunMissing`, which names the right folder, if `path` is not the folder of a run, and
        `CannotResume` if it is that of a study.
        """
        store = open_store(path, storage_filesystem)
        view = look(store)
        must_be_kind(store, view.identity, "train")
        result = result_of(
            store,
            view.record,
            Retention(),
            name=view.identity.name,
            filesystem=storage_filesystem,
        )
        result.error = _failure(view.history.run)
        return result

    @property
    def filesystem(self) -> Any:
        """The filesystem that `path` is on: the one given, or else one of pyarrow."""
        if self._filesystem is not None or self._history is None:
            return self._filesystem
        return filesystem_of(describe(self._history.store))

    @property
    def metrics_dataframe(self) -> Any:
        """All metrics ever reported, as a pandas `DataFrame` with one row per step.

        The index is the step: the number of reports that the run had made by then. Every step is
        there once, however often the run was interrupted. A nested metric has the column `a/b`. The
        metrics are read from storage on first access; later attempts are not included.
        """
        try:
            import pandas as pd
        except ImportError:
            raise ConfigError(
                "Result.metrics_dataframe needs pandas, which is not installed",
                hint="pip install pandas",
            ) from None
        rows = [] if self._history is None else self._history.rows()
        index = pd.Index([row.step for row in rows], dtype="int64", name="step")
        return pd.DataFrame([flattened(row.metrics) for row in rows], index=index)

    def get_best_checkpoint(self, metric: str, mode: Literal["min", "max"]) -> Checkpoint:
        """Return the kept checkpoint with the highest or lowest `metric`, `a/b` if nested.

        Of equals, the one that comes last in `best_checkpoints`. Raises `RuntimeError` if no
        checkpoint has a number for it.
        """
        if mode not in ("min", "max"):
            raise ValueError(f"mode={mode!r}: must be 'min' or 'max'")
        if not isinstance(metric, str):
            raise ValueError(f"metric={metric!r}: must be the name of a metric, {this_is(metric)}")
        if not self.best_checkpoints:
            raise RuntimeError(f"there is no checkpoint to choose by {metric!r}")
        scored = [
            (score, position)
            for position, (_, metrics) in enumerate(self.best_checkpoints)
            if (score := score_of(metrics, metric)) is not None and not math.isnan(score)
        ]
        if not scored:
            names = {name for _, metrics in self.best_checkpoints for name in flattened(metrics)}
            raise RuntimeError(
                f"no checkpoint has a number for {metric!r}; reported were: "
                + (", ".join(sorted(names)) or "no metrics at all")
            )
        sign = 1 if mode == "max" else -1
        _, position = max((sign * score, position) for score, position in scored)
        return self.best_checkpoints[position][0]


class _HistoryAt:
    """The stored metrics of a run up to its current attempt; later attempts are not included.

    All rows are read on first access, and then cached.
    """

    def __init__(self, store: Store, checkpoints: list[Kept], attempt: int | None = None) -> None:
        self.store, self._checkpoints, self._attempt = store, checkpoints, attempt
        self._rows: list[Row] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _history_at, (describe(self.store), self._checkpoints, self._attempt)

    def rows(self) -> list[Row]:
        if self._rows is None:
            self._rows = read_metric_rows(
                self.store, self._checkpoints, until_attempt=self._attempt
            ).rows
        return self._rows

    def latest_row(self) -> Row | None:
        """Return the newest metrics; None if there are none, or they cannot be read."""
        try:
            latest = read_latest(self.store, self._checkpoints)
        except StoreError as error:  # a result must not depend on them
            log.warning("the last metrics cannot be read: %s", error)
            return None
        self._attempt = latest.attempt
        return latest.row


def _history_at(
    store: Mapping[str, Any], checkpoints: list[Kept], attempt: int | None
) -> _HistoryAt:
    return _HistoryAt(reopen(store), checkpoints, attempt)


def result_of(
    store: Store,
    record: RunRecord,
    retention: Retention,
    *,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    filesystem: Any | None = None,
) -> Result:
    """Return the result of a run from its record; all its metric rows must be written."""
    order = [candidate.number for candidate in ranked(retention, record.candidates())]
    best = [
        (Checkpoint.in_run(store, entry.directory), dict(entry.metrics))
        for entry in (record.kept[number] for number in order)
    ]
    checkpoint, saved = best[order.index(max(order))] if order else (None, None)
    history = _HistoryAt(store, list(record.kept.values()))
    metrics = saved
    if (latest := history.latest_row()) is not None:
        metrics = dict(latest.metrics)
        if saved is not None and record.kept[max(order)].step == latest.step:
            metrics |= saved  # validation may have added to them
    return Result(
        metrics=metrics,
        checkpoint=checkpoint,
        path=path_of(store),
        best_checkpoints=best,
        config=None if config is None else dict(config),
        name=name,
        _filesystem=filesystem,
        _history=history,
    )


def _failure(run: Run) -> Exception | None:
    """Return the error that a run has failed with, None if it has not."""
    if not isinstance(run.phase, Over) or run.phase.ending is not Ending.FAILED:
        return None
    # These import this module.
    from holdfast.control.run.plan import Outcome
    from holdfast.train.errors import WorkerGroupError, failure_of

    error = failure_of(Outcome(run.phase, None, {}, None, run.attempts))
    for ended in run.phase.exits:
        if isinstance(ended, Raised) and isinstance(error, WorkerGroupError):
            error.worker_failures[ended.rank].add_note(ended.trace)
    return error


def returned_value(pickled: bytes) -> Any:
    """Return what the function returned; None, with a warning, if it cannot be unpickled.

    It may be a tensor on a GPU that this process lacks, or of a class that it cannot import; the
    run has succeeded all the same.
    """
    try:
        return unpack_value(pickled)
    except Exception as error:  # noqa: BLE001  # unpickling runs the value's own code
        warn_user(
            "the run has succeeded, but the value that the function returned cannot be unpickled"
            f" here, so return_value is None: {type(error).__name__}: {error}"
        )
        return None

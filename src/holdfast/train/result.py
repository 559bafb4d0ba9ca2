"""What a run has come to: its newest checkpoint, its best ones, its error."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.checkpoint import Checkpoint
from holdfast.control.run_view import look
from holdfast.core.record import RunRecord
from holdfast.core.retention import Retention, ranked, score_of
from holdfast.storage.arrow import arrow_filesystem, filesystem_path
from holdfast.storage.base import Store
from holdfast.storage.locate import open_store


@dataclass
class Result:
    """The outcome of a run, or what there is of it so far.

    Attributes:
        metrics: The last ones reported with a checkpoint, None if there was none.
        checkpoint: The newest one, None if there is none.
        error: Why the run failed, None if it did not.
        path: The run's folder, without a scheme.
        best_checkpoints: All that are kept, with their metrics, from worst to best.
        return_value: What rank 0 returned, if the run succeeded.
    """

    metrics: dict[str, Any] | None
    checkpoint: Checkpoint | None
    error: Exception | None = None
    path: str | None = None
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] = field(default_factory=list)
    return_value: Any = None
    _location: str = ""

    @classmethod
    def from_path(
        cls, path: str | os.PathLike[str], storage_filesystem: Any | None = None
    ) -> Result:
        """Return the result of the run in a folder, without its code; nothing is written."""
        store = open_store(path, storage_filesystem)
        return result_of(store, look(store).record, Retention())

    @property
    def filesystem(self) -> Any:
        """The filesystem that `path` is on, as pyarrow has them."""
        return arrow_filesystem(self._location)

    @property
    def metrics_dataframe(self) -> Any:
        """The metrics of all kept checkpoints, one row each, as pandas has tables."""
        import pandas as pd

        return pd.DataFrame([metrics for _, metrics in self.best_checkpoints])

    def get_best_checkpoint(self, metric: str, mode: Literal["min", "max"]) -> Checkpoint:
        """Return the kept checkpoint with the highest or lowest `metric`, `a/b` if nested."""
        if mode not in ("min", "max"):
            raise ValueError(f"mode={mode!r}: it is 'min' or 'max'")
        scored = [
            (score, position)
            for position, (_, metrics) in enumerate(self.best_checkpoints)
            if (score := score_of(metrics, metric)) is not None
        ]
        if not scored:
            names = sorted({name for _, metrics in self.best_checkpoints for name in metrics})
            raise RuntimeError(
                f"no checkpoint has a number for {metric!r}; reported were: {', '.join(names)}"
            )
        _, position = max(scored) if mode == "max" else min(scored)
        return self.best_checkpoints[position][0]


def result_of(store: Store, record: RunRecord, retention: Retention) -> Result:
    """Return what a run's record amounts to."""
    order = [candidate.number for candidate in ranked(retention, record.candidates())]
    best = [(number, record.kept[number]) for number in order]
    checkpoints: Sequence[tuple[Checkpoint, dict[str, Any]]] = [
        (Checkpoint.in_run(store, kept.directory), _plain(kept.metrics)) for _, kept in best
    ]
    newest = max(range(len(best)), key=lambda i: best[i][0], default=None)
    return Result(
        metrics=None if newest is None else checkpoints[newest][1],
        checkpoint=None if newest is None else checkpoints[newest][0],
        path=filesystem_path(store.url),
        best_checkpoints=list(checkpoints),
        _location=store.url,
    )


def _plain(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return dict(metrics)

"""A training run that a trial's function launches itself, and that the study is to hear of."""

from __future__ import annotations

import logging
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.worker.context import current

__all__ = ["CHECKPOINT_PATH_KEY", "TuneReportCallback"]

log = logging.getLogger(__name__)

CHECKPOINT_PATH_KEY = "checkpoint_path"


class TuneReportCallback:
    """For the `callbacks` of a trainer inside a trial: what its ranks report is a result.

    Make it inside the trial's function. A result has the metrics of rank 0 and, with a checkpoint,
    where that is, as `checkpoint_path`. A trainer that is a trial itself, `Tuner(trainer)`, needs
    none of this.
    """

    def __init__(self) -> None:
        self._trial = current()
        if self._trial is None:
            log.warning("TuneReportCallback() outside a trial does nothing")

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Tell the study; if the trial is to go no further, this ends the run."""
        del run_context
        if self._trial is not None:
            where = {} if checkpoint is None else {CHECKPOINT_PATH_KEY: checkpoint.path}
            self._trial.reporter.report({**metrics[0], **where})

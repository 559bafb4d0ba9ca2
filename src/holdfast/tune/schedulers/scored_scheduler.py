"""The base class of schedulers that compare a metric at the same progress of trials."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from holdfast.core.checkpoint.retention import score_of
from holdfast.errors import ConfigError
from holdfast.tune.result import DEFAULT_METRIC
from holdfast.tune.schedulers.trial_scheduler import FIFOScheduler
from holdfast.tune.stopper.reading import reported_names
from holdfast.tune.trial import StudyView, Trial

log = logging.getLogger(__name__)


class ScoredScheduler(FIFOScheduler):
    """Reads a trial's progress and score from results; a higher score is always better.

    A result that lacks one of them is not judged: the trial goes on, and the first time a warning
    is logged.
    """

    _time_attr: str
    _warned: set[str]

    def __init__(self, time_attr: str, metric: str | None, mode: str | None) -> None:
        self._time_attr = time_attr
        self._metric = metric
        self._mode = mode
        self._warned = set()

    def on_trial_add(self, view: StudyView, trial: Trial) -> None:
        self.check_ready()

    def check_ready(self) -> None:
        """Raise `ConfigError` if the metric or the mode is not set by now.

        With a mode alone, the metric is the number that a trainable returns or yields.
        """
        if self._metric is None and self._mode is not None:
            self._metric = DEFAULT_METRIC
        if self._metric is None or self._mode is None:
            name = type(self).__name__
            raise ConfigError(
                f"{name} has metric={self._metric!r} and mode={self._mode!r}, but needs both",
                hint=f"{name}(metric='loss', mode='min', …), or the same in TuneConfig",
            )

    def _time(self, result: Mapping[str, Any]) -> float | None:
        """Return the trial's progress, None if the result has none."""
        time = score_of(result, self._time_attr)
        if time is None or math.isnan(time):
            self._warn("time_attr", self._time_attr, result)
            return None
        return time

    def _score(self, result: Mapping[str, Any]) -> float | None:
        """Return the trial's score, higher is better; NaN is worst, None if the result has none."""
        score = score_of(result, self._metric or "")
        if score is None or math.isnan(score):
            self._warn("metric", self._metric or "", result)
        if score is None:
            return None
        return score if self._mode == "max" else -score

    def _warn(self, argument: str, name: str, result: Mapping[str, Any]) -> None:
        """Log once for each argument that results lack what it names."""
        if argument in self._warned:
            return
        self._warned.add(argument)
        why = " (no metric was named, so it is the number that a trainable returns)"
        log.warning(
            "%s: %s=%r%s is missing or not a number in a result, and the trial is not judged by it;"
            " reported: %s",
            type(self).__name__, argument, name, why if name == DEFAULT_METRIC else "",
            reported_names(result),
        )  # fmt: skip


def order_of(score: float) -> float:
    """Return a score for comparisons, in which NaN is worse than everything else."""
    return -math.inf if math.isnan(score) else score

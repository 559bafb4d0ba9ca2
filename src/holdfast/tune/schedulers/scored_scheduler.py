"""What schedulers have in common that judge by a metric at a time."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from holdfast.core.checkpoint.retention import score_of
from holdfast.core.study.trial import Trial
from holdfast.core.study.view import StudyView
from holdfast.errors import ConfigError
from holdfast.tune.result import DEFAULT_METRIC
from holdfast.tune.schedulers.trial_scheduler import FIFOScheduler
from holdfast.tune.stopper.reading import reported_names

log = logging.getLogger(__name__)


class ScoredScheduler(FIFOScheduler):
    """Reads from results how far a trial is and how good it is; more is always better.

    A result that does not tell is not judged: the trial goes on, and the first time it is said.
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
        """Raise `ConfigError` if nobody has said by now what to judge by.

        With a mode alone it is the number that a trainable returns or yields.
        """
        if self._metric is None and self._mode is not None:
            self._metric = DEFAULT_METRIC
        if self._metric is None or self._mode is None:
            name = type(self).__name__
            raise ConfigError(
                f"{name} has metric={self._metric!r} and mode={self._mode!r}, and cannot judge",
                hint=f"{name}(metric='loss', mode='min', …), or the same in TuneConfig",
            )

    def _time(self, result: Mapping[str, Any]) -> float | None:
        """Return how far the trial is, None if the result does not tell."""
        found = score_of(result, self._time_attr)
        if found is None or math.isnan(found):
            self._warn("time_attr", self._time_attr, result)
            return None
        return found

    def _score(self, result: Mapping[str, Any]) -> float | None:
        """Return how good the trial is, higher is better; NaN is worst, None is not told."""
        found = score_of(result, self._metric or "")
        if found is None or math.isnan(found):
            self._warn("metric", self._metric or "", result)
        if found is None:
            return None
        return found if self._mode == "max" else -found

    def _warn(self, what: str, name: str, result: Mapping[str, Any]) -> None:
        """Say once what is missing; the names that were reported help to find the mistake."""
        if what in self._warned:
            return
        self._warned.add(what)
        why = " (no metric was named, so it is the number that a trainable returns)"
        log.warning(
            "%s: %s=%r%s is missing or not a number in a result, and the trial is not judged by it;"
            " reported were: %s",
            type(self).__name__,
            what,
            name,
            why if name == DEFAULT_METRIC else "",
            reported_names(result),
        )


def order_of(score: float) -> float:
    """Return a score as it is compared: NaN is worse than everything else."""
    return -math.inf if math.isnan(score) else score

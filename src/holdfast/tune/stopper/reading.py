"""Reads metrics and iterations out of results, for stoppers and schedulers."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from holdfast.core.checkpoint.retention import score_of
from holdfast.core.metric_history import flattened
from holdfast.errors import ConfigError
from holdfast.tune.result import AUTO_RESULT_KEYS, TRAINING_ITERATION

log = logging.getLogger(__name__)
NAMES_MAX = 40


def reported_names(result: Mapping[str, Any]) -> str:
    """Return the names of the reported metrics, for a message: `a, b, c/d`."""
    metrics = flattened({name: value for name, value in result.items() if name != "config"})
    # The user's own come first.
    names = sorted(metrics, key=lambda name: (name in AUTO_RESULT_KEYS, name))
    if len(names) > NAMES_MAX:
        names = [*names[:NAMES_MAX], f"and {len(names) - NAMES_MAX} more"]
    return ", ".join(map(str, names)) or "nothing at all"


class MetricReader:
    """Reads one metric, `a/b` if nested, out of results; logs the first result that lacks it."""

    def __init__(self, metric: object, reader: str) -> None:
        if not isinstance(metric, str) or not metric:
            raise ConfigError(
                f"{reader}(metric={metric!r}): must be the name of a metric, 'a/b' if nested"
            )
        self._metric, self._reader = metric, reader
        self._has_warned = False

    def number(self, trial_id: str, result: Mapping[str, Any]) -> float | None:
        """Return the metric; None if it is missing, not a number, or NaN."""
        value = score_of(result, self._metric)
        if value is None or math.isnan(value):
            if not self._has_warned:
                self._has_warned = True
                problem = "is NaN" if value is not None else "was not reported as a number"
                log.warning(
                    "%s cannot judge trial %s, which goes on: %r %s; it reported: %s",
                    self._reader, trial_id, self._metric, problem, reported_names(result),
                )  # fmt: skip
            return None
        return value


def iteration_of(result: Mapping[str, Any]) -> int | None:
    """Return the result's `training_iteration`, None if it has none; restarts do not inflate it."""
    iteration = score_of(result, TRAINING_ITERATION)
    return None if iteration is None or not math.isfinite(iteration) else int(iteration)

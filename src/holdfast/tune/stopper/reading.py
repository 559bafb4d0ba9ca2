"""How stoppers read results: numbers by path, and one word where there is none."""

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
    """Return what a result holds, for a message: `a, b, c/d`; the config is left out."""
    found = flattened({name: v for name, v in result.items() if name != "config"})
    names = sorted(found, key=lambda name: (name in AUTO_RESULT_KEYS, name))  # the user's own first
    if len(names) > NAMES_MAX:
        names = [*names[:NAMES_MAX], f"and {len(names) - NAMES_MAX} more"]
    return ", ".join(map(str, names)) or "nothing at all"


class MetricReader:
    """Reads one metric out of results, `a/b` if nested; the first one without it is told of."""

    def __init__(self, metric: object, reader: str) -> None:
        if not isinstance(metric, str) or not metric:
            raise ConfigError(
                f"{reader}(metric={metric!r}): the name of a metric is a text, 'a/b' if nested"
            )
        self._metric, self._reader = metric, reader
        self._is_told = False

    def number(self, trial_id: str, result: Mapping[str, Any]) -> float | None:
        """Return the metric as a number; None, and the trial goes on, if it is none or NaN."""
        found = score_of(result, self._metric)
        if found is None or math.isnan(found):
            if not self._is_told:
                self._is_told = True
                what = "is NaN" if found is not None else "was not reported as a number"
                log.warning(
                    "%s cannot judge trial %s, which goes on: %r %s; reported were: %s",
                    self._reader, trial_id, self._metric, what, reported_names(result),
                )  # fmt: skip
            return None
        return found


def iteration_of(result: Mapping[str, Any]) -> int | None:
    """Return how many results the trial has made by now, those it made again counted once."""
    found = score_of(result, TRAINING_ITERATION)
    return None if found is None or not math.isfinite(found) else int(found)

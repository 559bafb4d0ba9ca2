"""DictStopper: stops trials at bounds, as in `{"training_iteration": 10, "eval/accuracy": 0.9}`."""

from __future__ import annotations

import logging
import math
import numbers
from collections.abc import Mapping
from typing import Any

from holdfast.core.checkpoint.retention import score_of
from holdfast.core.metric_history import flattened
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.tune.stopper.reading import reported_names
from holdfast.tune.stopper.stopper import Stopper

log = logging.getLogger(__name__)


class DictStopper(Stopper):
    """Stops a trial as soon as any metric reaches its bound or exceeds it.

    A nested metric is named `a/b`, or nested as in the result. A result that lacks a metric is not
    judged by it; the first such result is logged.
    """

    def __init__(self, criteria: Mapping[str, Any]) -> None:
        if not isinstance(criteria, Mapping):
            raise ConfigError(f"stop={shown(criteria)}: not a dictionary of metrics and numbers")
        self.criteria: dict[str, float] = {}
        for name, value in flattened(criteria).items():
            if not isinstance(name, str):
                raise ConfigError(f"stop={shown(criteria)}: {name!r} is not the name of a metric")
            if not isinstance(value, numbers.Real) or math.isnan(value):
                raise ConfigError(
                    f"stop[{name!r}]={shown(value)}: not a number to compare the metric with",
                    hint="stop={'training_iteration': 10} ends each trial after 10 results;"
                    " pass a function for anything else",
                )
            self.criteria[name] = float(value)
        self._warned: set[str] = set()

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        stops = False
        for name, bound in self.criteria.items():
            value = score_of(result, name)
            if value is not None:
                stops = stops or value >= bound
            elif name not in self._warned:
                self._warned.add(name)
                log.warning(
                    "stop[%r] does nothing so far: trial %s has not reported it as a number;"
                    " it reported: %s",
                    name, trial_id, reported_names(result),
                )  # fmt: skip
        return stops

    def stop_all(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"DictStopper({self.criteria})"

"""Stop when a metric has got somewhere: `{"training_iteration": 10, "eval/accuracy": 0.9}`."""

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
    """Stops a trial as soon as one metric is as high as its criterion, or higher.

    A metric inside another is named `a/b`, or is nested as it is reported. A result without one of
    the metrics stops nothing; the first such result is told of, with what it does report.
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
        self._told: set[str] = set()

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        stops = False
        for name, bound in self.criteria.items():
            found = score_of(result, name)
            if found is not None:
                stops = stops or found >= bound
            elif name not in self._told:
                self._told.add(name)
                log.warning(
                    "stop[%r] does nothing so far: trial %s has not reported it as a number;"
                    " reported were: %s",
                    name, trial_id, reported_names(result),
                )  # fmt: skip
        return stops

    def stop_all(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"DictStopper({self.criteria})"

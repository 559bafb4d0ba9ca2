"""TrialPlateauStopper: stops a trial whose metric no longer moves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from holdfast.api.checks import is_number, is_whole
from holdfast.errors import ConfigError
from holdfast.tune.stopper.reading import MetricReader, iteration_of
from holdfast.tune.stopper.stopper import Stopper


class TrialPlateauStopper(Stopper):
    """Stops a trial when a metric has been nearly constant for a while.

    Results that a restarted trial reports again replace the earlier ones.

    Args:
        metric: The metric to watch, `a/b` if nested.
        std: The metric counts as constant below this standard deviation.
        num_results: Over how many results the deviation is taken.
        grace_period: No trial stops before this many results.
        metric_threshold: No trial stops before the metric reaches this value.
        mode: Whether the metric reaches the threshold from above ("min") or below ("max").
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        self._metric = MetricReader(metric, type(self).__name__)
        self._std, self._length, self._grace = std, num_results, grace_period
        self._threshold, self._mode = metric_threshold, mode
        self._check()
        self._seen: dict[str, list[tuple[int, float]]] = {}  # the newest, by iteration
        self._counts: dict[str, int] = {}

    def _check(self) -> None:
        broken = None
        if not is_number(self._std) or self._std < 0:
            broken = f"std={self._std!r}: must be a number, 0 or more"
        elif not is_whole(self._length) or self._length < 1:
            broken = f"num_results={self._length!r}: must be a whole number, 1 or more"
        elif not is_whole(self._grace) or self._grace < 0:
            broken = f"grace_period={self._grace!r}: must be a whole number, 0 or more"
        elif self._mode not in (None, "min", "max"):
            broken = f"mode={self._mode!r}: must be 'min' or 'max'"
        elif self._threshold is not None and not is_number(self._threshold):
            broken = f"metric_threshold={self._threshold!r}: must be a number"
        elif self._threshold is not None and self._mode is None:
            broken = "metric_threshold without mode: mode says which side of it is better"
        if broken is not None:
            raise ConfigError(
                f"TrialPlateauStopper cannot work: {broken}",
                hint="TrialPlateauStopper('loss', metric_threshold=0.1, mode='min')",
            )

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        count = self._counts.get(trial_id, 0) + 1
        iteration = iteration_of(result)
        at = count if iteration is None else iteration
        self._counts[trial_id] = at
        value = self._metric.number(trial_id, result)
        window = [entry for entry in self._seen.get(trial_id, ()) if entry[0] < at]
        if value is not None:
            window.append((at, value))
        self._seen[trial_id] = window = window[-self._length :]
        if value is None or at < self._grace or len(window) < self._length:
            return False
        is_flat = deviation([score for _, score in window]) < self._std
        return is_flat and self._is_good_enough(value)

    def _is_good_enough(self, value: float) -> bool:
        if self._threshold is None:
            return True
        return value <= self._threshold if self._mode == "min" else value >= self._threshold

    def stop_all(self) -> bool:
        return False

    def get_state(self) -> dict[str, Any]:
        return {
            "seen": {trial: list(map(list, window)) for trial, window in self._seen.items()},
            "counts": dict(self._counts),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._counts = dict(state["counts"])
        self._seen = {
            trial: [(int(at), float(value)) for at, value in window]
            for trial, window in state["seen"].items()
        }

    def forget(self, trial_id: str) -> None:
        self._seen.pop(trial_id, None)
        self._counts.pop(trial_id, None)


def deviation(values: list[float]) -> float:
    """Return the standard deviation of a whole population; NaN if a value is infinite."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) * (value - mean) for value in values) / len(values))

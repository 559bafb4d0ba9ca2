"""Finds metrics that are NaN, and losses that are infinite."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

METRICS_MAX = 3  # to warn of; if all are NaN, a few warnings are enough


class NotFinite:
    """Finds metrics that are not finite, and remembers which have been reported.

    NaN counts in any metric. Infinity has its uses, and counts only if the metric is called a loss
    or is one of those `watched`.
    """

    def __init__(self, watched: Collection[str | None] = ()) -> None:
        self._watched = frozenset(watched)
        self._reported: set[str] = set()

    def found(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics that are not finite, by path."""
        return dict(self._found(metrics, ""))

    def news(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return those that no call has returned before, `METRICS_MAX` over all calls."""
        room = METRICS_MAX - len(self._reported)
        if room <= 0:
            return {}
        values = self.found(metrics)
        new = [name for name in values if name not in self._reported][:room]
        self._reported.update(new)
        return {name: values[name] for name in new}

    def _found(self, metrics: Mapping[str, Any], above: str) -> Iterator[tuple[str, float]]:
        for name, value in metrics.items():
            if isinstance(value, float):
                if not math.isfinite(value) and self._counts(f"{above}{name}", value):
                    yield f"{above}{name}", value
            elif isinstance(value, Mapping):
                yield from self._found(value, f"{above}{name}/")

    def _counts(self, name: str, value: float) -> bool:
        return math.isnan(value) or name in self._watched or "loss" in name.lower()


def in_words(metrics: Mapping[str, float]) -> str:
    """Return metrics on one line: `loss=nan, val/loss=inf`."""
    return ", ".join(f"{name}={value}" for name, value in metrics.items())

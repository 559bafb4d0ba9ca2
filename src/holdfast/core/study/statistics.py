"""Statistics of a metric over all results of a trial, in constant space."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RECENT = (5, 10)  # over how many results the averages go that are kept beside the last
_RECENT_MAX = max(RECENT)


@dataclass(slots=True)
class Statistics:
    """Maximum, minimum, last value and averages of one metric."""

    max: float
    min: float
    last: float
    sum: float = 0.0
    count: int = 0
    recent: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, value: float) -> Statistics:
        """Return the statistics of a single value."""
        if value != value:  # NaN
            return cls(value, value, value)
        return cls(value, value, value, value, 1, [value])

    def add(self, value: float) -> None:
        """Take in one more value; a NaN counts only as the last one."""
        self.last = value
        if value == value:  # not NaN
            if not self.max >= value:  # which no NaN is
                self.max = value
            if not self.min <= value:
                self.min = value
            self.sum += value
            self.count += 1
            self.recent = [*self.recent[1 - _RECENT_MAX :], value]

    def to_data(self) -> float | list[Any]:
        """Return it as plain data; a single value, the usual case, as itself."""
        if self.count == 1 and self.max == self.last:
            return self.last
        return [self.max, self.min, self.last, self.sum, self.count, self.recent]

    @classmethod
    def from_data(cls, data: float | list[Any]) -> Statistics:
        """Return what `to_data` was called on."""
        return cls(*data) if isinstance(data, list) else cls.of(data)

    def summary(self) -> dict[str, float]:
        """Return the statistics by the names that Ray's users know."""
        nan = float("nan")
        summary = {
            "max": self.max,
            "min": self.min,
            "avg": self.sum / self.count if self.count else nan,
            "last": self.last,
        }
        for length in RECENT:
            newest = self.recent[-length:]
            summary[f"last-{length}-avg"] = sum(newest) / len(newest) if newest else nan
        return summary

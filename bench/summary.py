"""Sums up repeated measurements by ranks, which a few wild ones cannot move."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from bench.question import Bar

CONFIDENCE = 0.9
COUNT_MIN = 5  # four tosses of a coin fall on one side too often to be sure of anything
COUNT_EARLY = 3  # enough where the bar is far off
MARGIN = 0.1  # of the bar, at least, before it counts as far off


class Verdict(Enum):
    """What can be said of a bar."""

    MET = "met"
    MISSED = "MISSED"
    UNCLEAR = "unclear: the spread spans the bar"
    TOO_FEW = "unclear: too few rounds"
    NO_BAR = ""


@dataclass(frozen=True)
class Summary:
    """The median of the figures, and the range in which the true one lies, `CONFIDENCE` sure."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, figures: Sequence[float]) -> Summary:
        ordered = sorted(figures)
        cut = _cut(len(ordered))
        return cls(statistics.median(ordered), ordered[cut], ordered[-1 - cut], len(ordered))

    def verdict(self, bar: Bar | None) -> Verdict:
        """Say whether the bar is met, and refuse where chance could have decided it."""
        if bar is None:
            return Verdict.NO_BAR
        if self.count < COUNT_MIN and not self._is_far_from(bar):
            return Verdict.TOO_FEW
        met = {bar.is_met_by(figure) for figure in (self.low, self.median, self.high)}
        if len(met) > 1:
            return Verdict.UNCLEAR
        return Verdict.MET if met.pop() else Verdict.MISSED

    def _is_far_from(self, bar: Bar) -> bool:
        """Whether a few figures will do: the bar is further from all than they from each other.

        Three figures as far as that on one side of what they scatter around would be rarer than
        one time in twenty, if they scatter as measurements mostly do.
        """
        if self.count < COUNT_EARLY:
            return False
        away = max(self.low - bar.limit, bar.limit - self.high)
        return away > max(self.high - self.low, MARGIN * abs(bar.limit))


def _cut(count: int) -> int:
    """Return how many figures may be left out at either end of the range around the median.

    The true median lies beyond the k-th smallest figure only if fewer than k of them fell on one
    side of it, as with that many heads in `count` tosses of a coin. No distribution is assumed.
    """
    tail, cut = 0.0, 0
    for heads in range(count // 2):
        tail += math.comb(count, heads) / 2**count
        if 2 * tail > 1 - CONFIDENCE:
            break
        cut = heads
    return cut

"""Maps the numbers of a domain to a line on which equal lengths are equally likely at first.

Models work on that line, so that only this module has to handle log scales and steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from holdfast.tune.search.domains import (
    Domain,
    Float,
    Integer,
    LogUniform,
    Normal,
    Quantized,
    multiple,
)

_ROOT_OF_TWO = math.sqrt(2)
_ROOT_OF_TWO_PI = math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class Dimension:
    """The line of one searched number.

    `low` and `high` are its ends, `centre` and `spread` are expected before anything is known;
    `step` is the distance between values, 0 if there is none.
    """

    domain: Domain
    is_log: bool
    step: float
    start: float  # of the line, in units of the number or of its logarithm
    length: float
    low: float = 0.0
    high: float = 1.0
    centre: float = 0.5
    spread: float = 1.0

    @classmethod
    def of(cls, domain: Domain) -> Dimension:
        """Return the line for a domain of numbers."""
        assert isinstance(domain, Float | Integer)
        sampler = domain.get_sampler()
        step = 0.0 if isinstance(domain, Float) else 1.0
        if isinstance(sampler, Quantized):
            step, sampler = sampler.q, sampler.sampler
        if isinstance(sampler, Normal):
            wide = math.inf
            return cls(domain, False, step, sampler.mean, sampler.sd, -wide, wide, 0.0, 1.0)  # noqa: FBT003
        last = domain.last if isinstance(domain, Integer) else domain.upper
        lower, upper = domain.lower - step / 2, last + step / 2
        is_log = isinstance(sampler, LogUniform)
        if is_log:
            lower, upper = math.log(lower), math.log(upper)
        return cls(domain, is_log, step, lower, (upper - lower) or 1.0)

    def place(self, value: float) -> float:
        """Return the place of a value on the line."""
        return ((math.log(value) if self.is_log else value) - self.start) / self.length

    def span(self, value: float) -> tuple[float, float] | None:
        """Return the part of the line that maps to a value; None if it is a point."""
        if not self.step:
            return None
        low, high = value - self.step / 2, value + self.step / 2
        if self.is_log:
            low = max(low, math.exp(self.start))
        return self.place(low), self.place(high)

    def value(self, place: float) -> Any:
        """Return the value at a place on the line."""
        raw = self.start + place * self.length
        raw = math.exp(raw) if self.is_log else raw
        domain = self.domain
        assert isinstance(domain, Float | Integer)
        last = domain.last if isinstance(domain, Integer) else domain.upper
        if self.step:
            raw = multiple(round(raw / self.step), self.step)
        raw = min(max(raw, domain.lower), last)
        return domain.cast(round(raw) if isinstance(domain, Integer) else raw)


@dataclass(frozen=True, slots=True)
class Bump:
    """A normal distribution on a line, cut off at its ends."""

    mean: float
    width: float
    inside: float  # the share of it that lies between the ends

    @classmethod
    def at(cls, mean: float, width: float, line: Dimension) -> Bump:
        """Return a bump on a line."""
        inside = _below((line.high - mean) / width) - _below((line.low - mean) / width)
        return cls(mean, width, max(inside, 1e-12))

    @property
    def peak(self) -> float:
        """The density at its mean."""
        return 1 / (self.width * _ROOT_OF_TWO_PI * self.inside)

    def density(self, place: float, span: tuple[float, float] | None) -> float:
        """Return how likely a value is: the density at a point, or the share inside a span."""
        if span is None:
            far = (place - self.mean) / self.width
            return math.exp(-0.5 * far * far) * self.peak
        low, high = ((edge - self.mean) / self.width for edge in span)
        return max(_below(high) - _below(low), 0.0) / self.inside


def _below(far: float) -> float:
    return 0.5 * (1 + math.erf(far / _ROOT_OF_TWO))

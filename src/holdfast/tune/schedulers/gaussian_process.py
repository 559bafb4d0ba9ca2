"""A model of how much a config improves a trial, for PB2; needs numpy.

A Gaussian process whose similarity fades with time, because a config that is good early in training
need not be good later. See Parker-Holder et al., "Provably Efficient Online Hyperparameter
Optimization with Population-Based Bandits".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

LENGTHS = (0.1, 0.2, 0.4, 0.8)  # the distance at which configs have little in common
FADINGS = (0.0, 0.05, 0.2)  # how much is forgotten from one interval to the next
NOISES = (0.001, 0.01, 0.1)
FITTED_ROWS = 64  # enough to choose between the above
CANDIDATES = 1024
REFINED = 256
DIGITS = 9  # smaller differences are ties: they depend on the processor's order of addition


@dataclass(frozen=True)
class Observation:
    """How much a trial gained in an interval.

    Attributes:
        interval: How many intervals went before; need not be a whole number.
        score: The score at the start of the interval.
        point: The trial's config, each value between 0 and 1.
        gain: How much the score grew.
    """

    interval: float
    score: float
    point: Sequence[float]
    gain: float


@dataclass(frozen=True)
class _Kernel:
    length: float
    fading: float
    noise: float

    def between(self, left: Array, right: Array) -> Array:
        """Return the similarity of each row of `left` to each row of `right`; column 0 is time."""
        apart = ((left[:, None, 1:] - right[None, :, 1:]) ** 2).sum(axis=2)
        since = np.abs(left[:, None, 0] - right[None, :, 0])
        near: Array = np.exp(-apart / (2 * self.length**2)) * (1 - self.fading) ** (since / 2)
        return near

    def factor(self, rows: Array) -> Array:
        covariance = self.between(rows, rows) + self.noise * np.eye(len(rows))
        factor: Array = np.linalg.cholesky(covariance).astype(np.float64)
        return factor


def most_promising(
    seen: Sequence[Observation],
    running: Sequence[Sequence[float]],
    interval: float,
    score: float,
    seed: int,
) -> list[float]:
    """Return the point with the highest upper bound of its gain.

    Args:
        seen: All observations, at least one.
        running: The points that other trials are trying now; they need not be tried again.
        interval: When the point will be used.
        score: The score that the trial starts from.
        seed: Seeds the draw of the points to compare.
    """
    low, high = _range([row.score for row in seen])
    rows = np.array([[row.interval, (row.score - low) / (high - low), *row.point] for row in seen])
    gains = np.array([row.gain for row in seen])
    spread = float(gains.std())
    gains = (gains - gains.mean()) / (spread if spread > 0 else 1.0)
    start = [interval, (score - low) / (high - low)]
    kernel = _fitted(rows[-FITTED_ROWS:], gains[-FITTED_ROWS:])
    tried = np.array([[*start, *point] for point in running]).reshape(len(running), rows.shape[1])
    bound = _Bound(kernel, rows, gains, np.concatenate([rows, tried]))
    draw = np.random.default_rng(seed)
    size = rows.shape[1] - len(start)
    points = draw.random((CANDIDATES, size))
    best = points[bound.highest(_with_start(start, points))]
    near = np.clip(best + draw.normal(0, 0.05, (REFINED, size)), 0, 1)
    points = np.concatenate([best[None], near])
    return [float(value) for value in points[bound.highest(_with_start(start, points))]]


class _Bound:
    """The upper confidence bound of the gain: the mean, and more where little is known."""

    def __init__(self, kernel: _Kernel, rows: Array, gains: Array, tried: Array) -> None:
        self._kernel, self._rows, self._tried = kernel, rows, tried
        self._factor = kernel.factor(tried)
        # The first rows of `tried` are `rows`, so their factor is a corner of the whole.
        self._weights = _solved(self._factor[: len(rows), : len(rows)], gains)
        # The paper's constants; with fewer than three observations its logarithm is negative.
        self._curiosity = math.sqrt(0.2 + max(0.0, math.log(0.4 * len(tried))))

    def highest(self, points: Array) -> int:
        mean = self._kernel.between(points, self._rows) @ self._weights
        half = np.linalg.solve(self._factor, self._kernel.between(self._tried, points))
        deviation = np.sqrt(np.maximum(1.0 - (half**2).sum(axis=0), 0.0))
        return int(np.argmax(np.round(mean + self._curiosity * deviation, DIGITS)))


def _fitted(rows: Array, gains: Array) -> _Kernel:
    """Return the kernel under which the gains are most likely; of equals, the first."""
    kernels = [_Kernel(*constants) for constants in product(LENGTHS, FADINGS, NOISES)]
    return max(kernels, key=lambda kernel: round(_likelihood(kernel, rows, gains), DIGITS))


def _likelihood(kernel: _Kernel, rows: Array, gains: Array) -> float:
    factor = kernel.factor(rows)
    return float(-gains @ _solved(factor, gains) / 2 - np.log(np.diag(factor)).sum())


def _solved(factor: Array, gains: Array) -> Array:
    return np.linalg.solve(factor.T, np.linalg.solve(factor, gains))


def _with_start(start: list[float], points: Array) -> Array:
    return np.concatenate([np.tile(start, (len(points), 1)), points], axis=1)


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low, low + 1.0)

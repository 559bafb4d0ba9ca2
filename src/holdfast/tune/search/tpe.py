"""Tree-structured Parzen estimators: models that choose the next config to try.

The tried configs are split into the good ones and the rest, and each part is smoothed into a
density. Of candidates drawn from the good density, the one with the highest ratio of good to rest
is taken (Bergstra et al. 2011). `TreeModel` models every value by itself, which allows values that
only some configs have; `JointModel` models all values at once, with wider bumps (Falkner et al.
2018).

Results depend only on the arguments: the history and the generator.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.tune.search.dimension import Bump, Dimension
from holdfast.tune.search.domains import Domain

Params = dict[str, Any]  # numbers as they are, options by their index

_TINY = 1e-32  # where both densities are less than this, they count as equal
_REMEMBERED = 25  # configs older than this many count less and less


@dataclass(frozen=True, slots=True)
class Tried:
    """A config that was tried, and its loss; less is better."""

    params: Params
    loss: float


class TreeModel:
    """A model of every value by itself, for spaces in which a value may depend on an option.

    Args:
        history: The tried configs, the oldest first.
        gamma: Of `n` configs, `4 * gamma * sqrt(n)` count as good. HyperOpt takes a quarter of
            that, which finds less with the same budget.
    """

    def __init__(
        self, history: Sequence[Tried], *, gamma: float = 0.25, candidates: int = 24
    ) -> None:
        count = min(math.ceil(4 * gamma * math.sqrt(len(history))), _REMEMBERED)
        ranked = sorted(range(len(history)), key=lambda at: (history[at].loss, at))
        good = sorted(ranked[:count])
        rest = sorted(ranked[count:])
        self._good = [history[at].params for at in good]
        self._rest = [history[at].params for at in rest]
        self._candidates = candidates

    def value(self, name: str, domain: Domain, generator: random.Random) -> Any:
        """Return the most promising number of a domain."""
        line = Dimension.of(domain)
        good = Smoothed.of(line, [params[name] for params in self._good if name in params])
        rest = Smoothed.of(line, [params[name] for params in self._rest if name in params])
        best, best_score = None, -math.inf
        for _ in range(self._candidates):
            value = line.value(good.draw(generator))
            score = good.log_density(value) - rest.log_density(value)
            if best is None or score > best_score:
                best, best_score = value, score
        return best

    def option(self, name: str, count: int, generator: random.Random) -> int:
        """Return the most promising of several options."""
        good = _shares([params[name] for params in self._good if name in params], count)
        rest = _shares([params[name] for params in self._rest if name in params], count)
        drawn = generator.choices(range(count), good, k=self._candidates)
        return max(drawn, key=lambda option: good[option] / rest[option])


@dataclass(frozen=True)
class Smoothed:
    """A density on a line: a bump for every value, as wide as the gap to its neighbours."""

    line: Dimension
    bumps: list[Bump]
    weights: list[float]

    @classmethod
    def of(cls, line: Dimension, values: Sequence[float]) -> Smoothed:
        """Return the density of values, the oldest first; the prior alone if there are none."""
        places = [line.place(value) for value in values]
        ages = _weights(len(places))
        marks = sorted([(place, ages[at]) for at, place in enumerate(places)])
        prior = bisect.bisect_left(marks, (line.centre, -math.inf))
        marks.insert(prior, (line.centre, 1.0))
        widest, narrowest = line.spread, line.spread / min(100.0, 1.0 + len(marks))
        bumps = []
        for at, (place, _) in enumerate(marks):
            near = [marks[next_to][0] for next_to in (at - 1, at + 1) if 0 <= next_to < len(marks)]
            gap = max((abs(place - other) for other in near), default=widest)
            width = widest if at == prior else min(max(gap, narrowest), widest)
            bumps.append(Bump.at(place, width, line))
        return cls(line, bumps, [weight for _, weight in marks])

    def draw(self, generator: random.Random) -> float:
        """Return a place on the line."""
        bump = generator.choices(self.bumps, self.weights)[0]
        return _inside(self.line, bump.mean, bump.width, generator)

    def log_density(self, value: float) -> float:
        """Return the logarithm of the density at a value."""
        place, span = self.line.place(value), self.line.span(value)
        total = sum(
            weight * bump.density(place, span)
            for bump, weight in zip(self.bumps, self.weights, strict=True)
        )
        return math.log(max(total / sum(self.weights), _TINY))


@dataclass(frozen=True, slots=True, kw_only=True)
class JointSettings:
    """Settings of a joint model.

    Attributes:
        top_n_percent: How many of the tried configs count as good.
        min_points_in_model: How many configs make a density; at least, and for None, one more than
            there are values. The model is used once there are two more than that.
        num_samples: How many candidates are drawn.
        random_fraction: How often a config is drawn without the model.
        bandwidth_factor: How much wider bumps are when candidates are drawn from them.
        min_bandwidth: The smallest width of a bump.
    """

    top_n_percent: float = 15
    min_points_in_model: int | None = None
    num_samples: int = 64
    random_fraction: float = 1 / 3
    bandwidth_factor: float = 3
    min_bandwidth: float = 1e-3


class JointModel:
    """A model of all values of a space at once."""

    def __init__(
        self,
        lines: dict[str, Dimension | int],
        settings: JointSettings,
        good: Kernels,
        bad: Kernels,
    ) -> None:
        self._lines, self._settings = lines, settings
        self._good, self._bad = good, bad

    @classmethod
    def of(
        cls, lines: dict[str, Dimension | int], history: Sequence[Tried], settings: JointSettings
    ) -> JointModel | None:
        """Return the model of the configs that have all values; None if they are too few.

        A line is the `Dimension` of a number, or the count of options.
        """
        whole = [tried for tried in history if lines.keys() <= tried.params.keys()]
        needed = max(settings.min_points_in_model or 0, len(lines) + 1)
        if len(whole) < needed + 2 or not lines:
            return None
        ranked = sorted(whole, key=lambda tried: tried.loss)
        good_count, bad_count = parts_of(len(whole), needed, settings.top_n_percent)
        good, bad = ranked[:good_count], ranked[-bad_count:]
        floor = settings.min_bandwidth
        return cls(lines, settings, Kernels.of(lines, good, floor), Kernels.of(lines, bad, floor))

    def params(self, generator: random.Random) -> Params:
        """Return the most promising values."""
        best: Params = {}
        best_score = -math.inf
        for _ in range(self._settings.num_samples):
            drawn = self._good.draw(generator, self._settings.bandwidth_factor)
            score = self._good.log_density(drawn) - self._bad.log_density(drawn)
            if not best or score > best_score:
                best, best_score = drawn, score
        return best


def parts_of(count: int, needed: int, top_n_percent: float) -> tuple[int, int]:
    """Return how many of the tried configs count as good, and how many as bad.

    Equations 2 and 3 of the paper: the best `top_n_percent` and the rest, but at least `needed` of
    each, so that some count as both while there are few.
    """
    good = max(needed, int(top_n_percent * count / 100))
    return good, max(needed, count - good)


class Kernels:
    """A density over several lines, with a bump over all of them for every config."""

    def __init__(
        self, lines: dict[str, Dimension | int], centres: list[Params], widths: dict[str, float]
    ) -> None:
        self._lines, self._centres, self._widths = lines, centres, widths
        # Most lines have no steps; those share one exponential per bump.
        smooth = {
            name: line
            for name, line in lines.items()
            if isinstance(line, Dimension) and not line.step
        }
        self._smooth = list(smooth)
        self._rest = [name for name in lines if name not in smooth]
        self._inverse = [1 / widths[name] for name in smooth]
        self._bumps = []
        for centre in centres:
            bumps = {
                name: Bump.at(line.place(centre[name]), widths[name], line)
                for name, line in lines.items()
                if isinstance(line, Dimension)
            }
            scale = math.prod(bumps[name].peak for name in smooth)
            self._bumps.append((scale, [bumps[name].mean for name in smooth], bumps))

    @classmethod
    def of(cls, lines: dict[str, Dimension | int], tried: list[Tried], floor: float) -> Kernels:
        """Return the density of configs, with widths by the normal reference rule."""
        centres = [config.params for config in tried]
        shrink = len(centres) ** (-1 / (4 + len(lines)))
        widths = {}
        for name, line in lines.items():
            if isinstance(line, Dimension):
                deviation = _deviation([line.place(params[name]) for params in centres])
                widths[name] = max(1.06 * deviation * shrink, floor)
            else:  # the probability of drawing another option
                kinds = len({params[name] for params in centres})
                widths[name] = max(min(0.5 * shrink * kinds / line, (line - 1) / line), floor)
        return cls(lines, centres, widths)

    def draw(self, generator: random.Random, wider: float) -> Params:
        """Return a config near one of the centres."""
        centre = generator.choice(self._centres)
        drawn: Params = {}
        for name, line in self._lines.items():
            if isinstance(line, Dimension):
                width = self._widths[name] * wider
                drawn[name] = line.value(_inside(line, line.place(centre[name]), width, generator))
            elif generator.random() < self._widths[name]:
                drawn[name] = generator.randrange(line)
            else:
                drawn[name] = centre[name]
        return drawn

    def log_density(self, params: Params) -> float:
        """Return the logarithm of the density at a config."""
        lines = [(name, self._lines[name]) for name in self._smooth]
        spot = [line.place(params[name]) for name, line in lines if isinstance(line, Dimension)]
        total = 0.0
        for centre, (scale, means, bumps) in zip(self._centres, self._bumps, strict=True):
            far = 0.0
            for place, mean, inverse in zip(spot, means, self._inverse, strict=True):
                far += ((place - mean) * inverse) ** 2
            density = scale * math.exp(-0.5 * far)
            for name in self._rest:
                density *= self._share(name, centre[name], params[name], bumps.get(name))
            total += density
        return math.log(max(total / len(self._centres), _TINY))

    def _share(self, name: str, centre: Any, value: Any, bump: Bump | None) -> float:
        """Return how likely a value with steps, or an option, is near a centre."""
        line = self._lines[name]
        if isinstance(line, Dimension):
            assert bump is not None
            return bump.density(line.place(value), line.span(value))
        width = self._widths[name]
        return 1 - width if centre == value else width / max(line - 1, 1)


def _inside(line: Dimension, mean: float, width: float, generator: random.Random) -> float:
    """Return a place drawn from a normal distribution, between the ends of the line."""
    for _ in range(100):
        drawn = generator.gauss(mean, width)
        if line.low <= drawn <= line.high:
            return drawn
    return min(max(mean, line.low), line.high)


def _shares(options: Sequence[int], count: int) -> list[float]:
    """Return how likely each option is, starting from one vote split between all of them."""
    votes = [1.0 / count] * count
    for option, weight in zip(options, _weights(len(options)), strict=True):
        votes[option] += weight
    total = sum(votes)
    return [vote / total for vote in votes]


def _weights(count: int) -> list[float]:
    """Return the weights of `count` configs, the oldest first."""
    older = max(count - _REMEMBERED, 0)
    ramp = [
        1 / count + (1 - 1 / count) * at / max(older - 1, 1) if older > 1 else 1.0
        for at in range(older)
    ]
    return ramp + [1.0] * (count - older)


def _deviation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))

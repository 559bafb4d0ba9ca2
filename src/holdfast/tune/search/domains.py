"""Search domains and samplers: the classes behind `uniform`, `choice` and the rest.

A domain is a value: drawing from it changes nothing but the generator.
"""

from __future__ import annotations

import copy
import inspect
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

from holdfast.api.checks import is_number, is_whole
from holdfast.api.recorded_call import Made
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.tune.search.seeding import seed_of


@dataclass(frozen=True)
class Sampler:
    """How to draw from a domain."""


@dataclass(frozen=True)
class Uniform(Sampler):
    """Every value is as likely as any other."""


@dataclass(frozen=True)
class LogUniform(Sampler):
    """Every order of magnitude is as likely as any other."""


@dataclass(frozen=True)
class Normal(Sampler):
    """Values gather around a mean."""

    mean: float = 0.0
    sd: float = 1.0


@dataclass(frozen=True)
class Grid(Sampler):
    """Every value is tried, as in `grid_search`."""


@dataclass(frozen=True)
class Quantized(Sampler):
    """Only multiples of `q`, the upper bound included."""

    sampler: Sampler
    q: float

    def get_sampler(self) -> Sampler:
        """Return the sampler to draw with before rounding."""
        return self.sampler


class Domain(Made):
    """A set of values to draw from."""

    sampler: Sampler | None = None

    @property
    def made_with(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments that make an equal domain."""
        return self.bounds(), {} if self.sampler is None else {"sampler": self.sampler}

    @made_with.setter
    def made_with(self, given: object) -> None:
        """Ignore it: the arguments follow from the domain's current attributes."""

    def bounds(self) -> tuple[Any, ...]:
        """Return the arguments that it is made with, without the sampler."""
        raise NotImplementedError

    def draw(self, generator: random.Random) -> Any:
        """Return one value, which depends on the generator alone."""
        raise NotImplementedError

    def is_valid(self, value: Any) -> bool:
        """Return whether `value` could have been drawn from here, apart from rounding."""
        raise NotImplementedError

    @property
    def domain_str(self) -> str:
        """The bounds or the options, as text."""
        raise NotImplementedError

    def get_sampler(self) -> Sampler:
        """Return the sampler that values are drawn with."""
        return self.sampler or Uniform()

    def set_sampler(self, sampler: Sampler, *, allow_override: bool = False) -> None:
        """Set the sampler that values are drawn with; only once, unless an override is allowed."""
        if self.sampler is not None and not allow_override:
            raise ConfigError(f"{self!r} has a sampler already: {self.sampler}")
        self.sampler = sampler

    def is_grid(self) -> bool:
        """Return whether every value is tried."""
        return isinstance(self.sampler, Grid)

    def is_function(self) -> bool:
        """Return whether values come from a user's function."""
        return False

    def cast(self, value: Any) -> Any:
        """Return `value` as the type that is drawn."""
        return value

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        """Return one value, or a list of `size` values."""
        generator = random.Random(seed_of(random_state, "random_state"))
        values = [self._draw_with(generator, config) for _ in range(size)]
        return values[0] if size == 1 else values

    def _draw_with(self, generator: random.Random, config: Any) -> Any:
        return self.draw(generator)

    def _with(self, sampler: Sampler) -> Self:
        domain = copy.copy(self)
        domain.sampler = sampler
        return domain

    def __repr__(self) -> str:
        sampler = type(self.get_sampler()).__name__.lower()
        return f"{type(self).__name__}{self.domain_str}.{sampler}"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # options may be anything


class Float(Domain):
    """Real numbers from `lower` to `upper`; None for no bound."""

    def __init__(
        self, lower: float | None, upper: float | None, sampler: Sampler | None = None
    ) -> None:
        self.lower = -math.inf if lower is None else float(lower)
        self.upper = math.inf if upper is None else float(upper)
        if sampler is not None:
            self.sampler = sampler

    def bounds(self) -> tuple[Any, ...]:
        bounds = self.lower, self.upper
        return tuple(None if math.isinf(bound) else bound for bound in bounds)

    def uniform(self) -> Float:
        return self._with(Uniform())

    def loguniform(self) -> Float:
        return self._with(LogUniform())

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> Float:
        return self._with(Normal(mean, sd))

    def quantized(self, q: float) -> Float:
        return self._with(Quantized(self.get_sampler(), q))

    def cast(self, value: Any) -> float:
        return float(value)

    def is_valid(self, value: Any) -> bool:
        return is_number(value) and self.lower <= value <= self.upper

    def draw(self, generator: random.Random) -> float:
        sampler = self.get_sampler()
        if isinstance(sampler, Quantized):
            return multiple(self._draw_steps(generator, sampler.sampler, sampler.q), sampler.q)
        match sampler:
            case Normal(mean, sd):
                drawn = generator.gauss(mean, sd)
            case LogUniform():
                drawn = _log_between(generator, self.lower, self.upper)
            case _:
                drawn = generator.uniform(self.lower, self.upper)
        return min(max(drawn, self.lower), self.upper)

    def _draw_steps(self, generator: random.Random, sampler: Sampler, q: float) -> int:
        """Return a multiple of `q` as a count; the bounds are as likely as the rest, not half."""
        if isinstance(sampler, Normal):
            return round(generator.gauss(sampler.mean, sampler.sd) / q)
        first, last = steps(self.lower, q), steps(self.upper, q)
        if isinstance(sampler, LogUniform):
            drawn = _log_between(generator, self.lower - q / 2, self.upper + q / 2)
            return min(max(round(drawn / q), first), last)
        return generator.randrange(first, last + 1)

    @property
    def domain_str(self) -> str:
        return f"({self.lower}, {self.upper})"


class Integer(Domain):
    """Whole numbers from `lower` to `upper`, which is included only if quantized.

    Quantized bounds are multiples, so that no searcher has to find the first one.
    """

    def __init__(self, lower: int, upper: int, sampler: Sampler | None = None) -> None:
        self.lower, self.upper = int(lower), int(upper)
        if sampler is not None:
            self.sampler = sampler

    def bounds(self) -> tuple[Any, ...]:
        return self.lower, self.upper

    @property
    def last(self) -> int:
        """The largest number that can be drawn."""
        return self.upper if isinstance(self.sampler, Quantized) else self.upper - 1

    def uniform(self) -> Integer:
        return self._with(Uniform())

    def loguniform(self) -> Integer:
        return self._with(LogUniform())

    def quantized(self, q: int) -> Integer:
        """Return the multiples of `q` between the bounds, with the outermost as new bounds."""
        if q <= 0:
            raise ConfigError(f"quantized({q!r}): q must be above 0")
        lower, upper = int(-(-self.lower // q) * q), int(self.upper // q * q)
        if lower > upper:
            raise ConfigError(
                f"no multiple of q={q!r} lies between {self.lower} and {self.upper}",
                hint="use a smaller q, or bounds that are further apart",
            )
        domain = self._with(Quantized(self.get_sampler(), q))
        domain.lower, domain.upper = lower, upper
        return domain

    def cast(self, value: Any) -> int:
        return int(value)

    def is_valid(self, value: Any) -> bool:
        return is_number(value) and value == int(value) and self.lower <= value <= self.last

    def draw(self, generator: random.Random) -> int:
        sampler = self.get_sampler()
        q = 1
        if isinstance(sampler, Quantized):
            q, sampler = int(sampler.q), sampler.sampler
        first, last = self.lower // q, self.last // q
        if isinstance(sampler, LogUniform):
            # Number k stands for everything from k up to k + 1.
            drawn = int(_log_between(generator, first, last + 1))
            return min(max(drawn, first), last) * q
        return generator.randrange(first, last + 1) * q

    @property
    def domain_str(self) -> str:
        return f"({self.lower}, {self.upper})"


class Categorical(Domain):
    """One of several options, which may be any values, even domains."""

    def __init__(self, categories: Sequence[Any], sampler: Sampler | None = None) -> None:
        self.categories = list(categories)
        if sampler is not None:
            self.sampler = sampler

    def bounds(self) -> tuple[Any, ...]:
        return (self.categories,)

    def uniform(self) -> Categorical:
        return self._with(Uniform())

    def grid(self) -> Categorical:
        return self._with(Grid())

    def draw(self, generator: random.Random) -> Any:
        return generator.choice(self.categories)

    def is_valid(self, value: Any) -> bool:
        return any(value is option or value == option for option in self.categories)

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, index: int) -> Any:
        return self.categories[index]

    @property
    def domain_str(self) -> str:
        return f"({self.categories})"


class Function(Domain):
    """The values that a user's function returns; it is called with the config so far, if it can."""

    def __init__(self, func: Callable[..., Any]) -> None:
        if not callable(func):
            raise ConfigError(
                f"sample_from({func!r}): not a function", hint="sample_from(lambda config: …)"
            )
        self.func = func
        self.pass_config = _takes(func, {})
        if not self.pass_config and not _takes(func):
            raise ConfigError(
                f"sample_from({shown(func)}): it is called with the config or with nothing,"
                " but needs other arguments",
                hint="sample_from(lambda config: …)",
            )

    def bounds(self) -> tuple[Any, ...]:
        return (self.func,)

    def call(self, config: Mapping[str, Any]) -> Any:
        """Return what the function returns."""
        return self.func(config) if self.pass_config else self.func()

    def draw(self, generator: random.Random) -> Any:
        return self.call({})

    def _draw_with(self, generator: random.Random, config: Any) -> Any:
        return self.call(config or {})

    def is_function(self) -> bool:
        return True

    def is_valid(self, value: Any) -> bool:
        return True

    @property
    def domain_str(self) -> str:
        return f"({getattr(self.func, '__qualname__', self.func)})"


def steps(value: float, q: float) -> int:
    """Return a multiple of `q` as a count of `q`."""
    return round(value / q)


def multiple(count: int, q: float) -> float:
    """Return `count` times `q` without binary rounding errors: 3 times 0.1 is 0.3."""
    return float(Decimal(repr(float(q))) * count)


def is_multiple(value: float, q: float) -> bool:
    """Return whether `value` is a multiple of `q`, apart from float rounding."""
    if is_whole(value) and is_whole(q):
        return value % q == 0
    return math.isclose(steps(value, q) * q, value, rel_tol=1e-9, abs_tol=abs(q) * 1e-9)


def _log_between(generator: random.Random, lower: float, upper: float) -> float:
    return math.exp(generator.uniform(math.log(lower), math.log(upper)))


def _takes(func: Callable[..., Any], *arguments: Any) -> bool:
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return True
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True

"""Changes configs for population based training: a step away from a good one, or a new draw."""

from __future__ import annotations

import math
import numbers
import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from holdfast.api.checks import is_number, this_is
from holdfast.core.names import shown
from holdfast.core.plain_data import own
from holdfast.tune.errors import TuneError
from holdfast.tune.search.domains import (
    Categorical,
    Domain,
    Float,
    Integer,
    Quantized,
    multiple,
    steps,
)
from holdfast.tune.search.seeding import seeded_globals

Config = dict[str, Any]


def broken_mutation_rules(mutations: Mapping[str, Any], path: str = "") -> list[str]:
    """Return what is wrong with mutations, one line for each."""
    problems = []
    for key, mutation in mutations.items():
        name = f"{path}{key}"
        if isinstance(mutation, Mapping):
            problems += broken_mutation_rules(mutation, f"{name}/")
        elif isinstance(mutation, Domain):
            if mutation.is_function():
                problems.append(f"{name!r}: `sample_from` needs a whole config to draw from")
        elif isinstance(mutation, list | tuple):
            if not mutation:
                problems.append(f"{name!r}: an empty list leaves nothing to choose")
        elif not callable(mutation):
            problems.append(f"{name!r}: {shown(mutation)} is not a list, a domain or a function")
    return problems


def values_outside(
    space: Mapping[str, Any], mutations: Mapping[str, Any], path: str = ""
) -> list[str]:
    """Return which values of a search space lie outside of their mutations, one line for each."""
    problems = []
    for key, mutation in mutations.items():
        value, name = space.get(key), f"{path}{key}"
        if isinstance(mutation, Mapping):
            nested = value if isinstance(value, Mapping) else {}
            problems += values_outside(nested, mutation, f"{name}/")
        elif isinstance(mutation, Float | Integer) and (wrong := _outside(value, mutation)):
            problems.append(f"{name!r}: {wrong} is outside of {mutation!r}")
    return problems


def _outside(value: Any, domain: Float | Integer) -> str:
    """Return a value of a search space that lies outside of a domain, "" if none does."""
    if isinstance(value, Float | Integer):
        last = value.last if isinstance(value, Integer) else value.upper
        top = domain.last if isinstance(domain, Integer) else domain.upper
        return repr(value) if last < domain.lower or value.lower > top else ""
    is_grid = isinstance(value, Mapping) and isinstance(value.get("grid_search"), list | tuple)
    options = value["grid_search"] if is_grid else getattr(value, "categories", [value])
    for option in options:
        if is_number(option) and not (math.isfinite(option) and domain.is_valid(option)):
            return shown(option)
    return ""


def copied(value: Any) -> Any:
    """Return a copy of nested dicts and lists; everything else in it is shared."""
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def complete(config: Config, mutations: Mapping[str, Any], generator: random.Random) -> None:
    """Draw the values that have a mutation and are missing in the config."""
    for key, mutation in mutations.items():
        if isinstance(mutation, Mapping):
            complete(config.setdefault(key, {}), mutation, generator)
        elif key not in config:
            config[key] = drawn(mutation, generator)


def perturbed(
    config: Mapping[str, Any],
    mutations: Mapping[str, Any],
    generator: random.Random,
    *,
    resample_probability: float,
    factors: Sequence[float],
) -> Config:
    """Return a copy of a config in which everything that has a mutation is mutated.

    With `resample_probability` a value is drawn anew. Otherwise a value of a list moves by one
    place, and a number is multiplied by one of `factors` and stays in its domain: within the
    bounds, and whole or a multiple if the domain is. Other values are drawn anew.
    """
    new: Config = copied(config)
    for key, mutation in mutations.items():
        value = new.get(key)
        if isinstance(mutation, Mapping):
            new[key] = perturbed(
                value if isinstance(value, Mapping) else {}, mutation, generator,
                resample_probability=resample_probability, factors=factors,
            )  # fmt: skip
        elif generator.random() < resample_probability:
            new[key] = drawn(mutation, generator)
        else:
            new[key] = _moved(value, mutation, generator, factors)
    return new


def drawn(mutation: Any, generator: random.Random) -> Any:
    """Return a new value, which depends on the generator alone."""
    if isinstance(mutation, Domain):
        return own(mutation.draw(generator))
    if isinstance(mutation, list | tuple):
        return generator.choice(mutation)
    with seeded_globals(generator.getrandbits(32)):  # users write `lambda: random.uniform(0, 1)`
        return own(mutation())


def explored_by(function: Callable[[Config], Config], config: Config, seed: int) -> Config:
    """Return the config that a user's function makes of `config`."""
    with seeded_globals(seed):
        new: object = function(config)
    if not isinstance(new, dict):
        raise TuneError(
            f"custom_explore_fn returned {shown(new)}, {this_is(new)}; it must return a config",
            hint="change the config it is given, and end with `return config`",
        )
    return new


def tag_for(tag: str, config: Mapping[str, Any], mutations: Mapping[str, Any]) -> str:
    """Return the tag of a trial, with the mutated values."""
    return f"{tag}@perturbed[{','.join(_named_values(config, mutations))}]"


def _moved(value: Any, mutation: Any, generator: random.Random, factors: Sequence[float]) -> Any:
    options = mutation.categories if isinstance(mutation, Categorical) else mutation
    if isinstance(options, list | tuple):
        if value not in options:
            return generator.choice(options)
        place = options.index(value) + generator.choice((-1, 1))
        return options[min(max(place, 0), len(options) - 1)]
    exact = _exact(value)
    if exact is None:
        return drawn(mutation, generator)
    factor = generator.choice(factors)
    if isinstance(mutation, Integer):
        grid = int(_grid_of(mutation) or 1)
        low, high = -(-mutation.lower // grid), mutation.last // grid
        return _moved_by_steps(exact / grid, factor, low, high) * grid
    if isinstance(mutation, Float) and (q := _grid_of(mutation)) is not None:
        low, high = steps(mutation.lower, q), steps(mutation.upper, q)
        return multiple(_moved_by_steps(exact / Fraction(q), factor, low, high), q)
    if isinstance(mutation, Float):
        return min(max(float(value) * factor, mutation.lower), mutation.upper)
    if not isinstance(value, numbers.Integral):
        return float(value) * factor
    return _moved_by_steps(exact, factor, *_bounds_of_sign(exact))


def _exact(value: Any) -> Fraction | None:
    """Return a finite number exactly, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    if isinstance(value, numbers.Integral):
        return Fraction(int(value))
    return Fraction(float(value)) if math.isfinite(float(value)) else None


def _bounds_of_sign(place: Fraction) -> tuple[float, float]:
    """Return the bounds of a whole number without a domain: it keeps its sign and is never 0."""
    return (1, math.inf) if place > 0 else (0, math.inf) if place == 0 else (-math.inf, -1)


def _moved_by_steps(place: Fraction, factor: float, low: float, high: float) -> int:
    """Return the place on a grid that a factor moves to: the nearest, but at least one step away.

    Otherwise small numbers would never move: 2 times 1.2 is nearest to 2.
    """
    moved, here = round(place * Fraction(factor)), round(place)
    if moved == here and factor != 1:
        is_up = (factor > 1) == (place >= 0)
        moved += 1 if is_up else -1
    return int(min(max(moved, low), high))


def _grid_of(domain: Float | Integer) -> float | None:
    """Return the number that all values are multiples of, None if there is none."""
    sampler = domain.get_sampler()
    return sampler.q if isinstance(sampler, Quantized) else None


def _named_values(config: Mapping[str, Any], mutations: Mapping[str, Any]) -> list[str]:
    texts = []
    for key, mutation in mutations.items():
        value = config.get(key)
        if isinstance(mutation, Mapping) and isinstance(value, Mapping):
            texts += [f"{key}/{text}" for text in _named_values(value, mutation)]
        else:
            texts.append(f"{key}={value:.4f}" if isinstance(value, float) else f"{key}={value}")
    return texts

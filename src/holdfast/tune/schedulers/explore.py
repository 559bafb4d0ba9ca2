"""How population based training changes a config: a step away from a good one, or a new draw."""

from __future__ import annotations

import numbers
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.api.checks import this_is
from holdfast.core.names import shown
from holdfast.tune.errors import TuneError
from holdfast.tune.search.domains import Categorical, Domain
from holdfast.tune.search.plain import own
from holdfast.tune.search.seeding import seeded_globals

Config = dict[str, Any]


def broken_mutation_rules(mutations: Mapping[str, Any], path: str = "") -> list[str]:
    """Return what is wrong with mutations, a line for each."""
    found = []
    for key, mutation in mutations.items():
        name = f"{path}{key}"
        if isinstance(mutation, Mapping):
            found += broken_mutation_rules(mutation, f"{name}/")
        elif isinstance(mutation, Domain):
            if mutation.is_function():
                found.append(f"{name!r}: `sample_from` cannot be drawn from without a whole config")
        elif isinstance(mutation, list | tuple):
            if not mutation:
                found.append(f"{name!r}: an empty list leaves nothing to choose")
        elif not callable(mutation):
            found.append(f"{name!r}: {shown(mutation)} is no list, no domain and no function")
    return found


def copied(value: Any) -> Any:
    """Return a config that can be changed without changing `value`; what is no data is shared."""
    if isinstance(value, Mapping):
        return {key: copied(below) for key, below in value.items()}
    if isinstance(value, list):
        return [copied(below) for below in value]
    return value


def complete(config: Config, mutations: Mapping[str, Any], generator: random.Random) -> None:
    """Draw a value for whatever would be mutated and is not in the config."""
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

    With `resample_probability` a value is drawn anew. Else one of a list moves by one place, and a
    number is multiplied by one of `factors`; whole numbers stay whole. What is neither in the list
    nor a number is always drawn anew.
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
    """Return a new value; the same for a generator in the same state."""
    if isinstance(mutation, Domain):
        return own(mutation.draw(generator))
    if isinstance(mutation, list | tuple):
        return generator.choice(mutation)
    with seeded_globals(generator.getrandbits(32)):  # people write `lambda: random.uniform(0, 1)`
        return own(mutation())


def explored_by(function: Callable[[Config], Config], config: Config, seed: int) -> Config:
    """Return what a function of the user's makes of a config."""
    with seeded_globals(seed):
        found: object = function(config)
    if not isinstance(found, dict):
        raise TuneError(
            f"custom_explore_fn returned {shown(found)}, {this_is(found)}; it must return a config",
            hint="change the config it is given, and end with `return config`",
        )
    return found


def tag_for(tag: str, config: Mapping[str, Any], mutations: Mapping[str, Any]) -> str:
    """Return the tag of a trial with the values that were mutated."""
    return f"{tag}@perturbed[{','.join(_named_values(config, mutations))}]"


def _moved(value: Any, mutation: Any, generator: random.Random, factors: Sequence[float]) -> Any:
    options = mutation.categories if isinstance(mutation, Categorical) else mutation
    if isinstance(options, list | tuple):
        if value not in options:
            return generator.choice(options)
        place = options.index(value) + generator.choice((-1, 1))
        return options[min(max(place, 0), len(options) - 1)]
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return drawn(mutation, generator)
    moved = float(value) * generator.choice(factors)
    return int(moved) if isinstance(value, numbers.Integral) else moved


def _named_values(config: Mapping[str, Any], mutations: Mapping[str, Any]) -> list[str]:
    found = []
    for key, mutation in mutations.items():
        value = config.get(key)
        if isinstance(mutation, Mapping) and isinstance(value, Mapping):
            found += [f"{key}/{below}" for below in _named_values(value, mutation)]
        else:
            found.append(f"{key}={value:.4f}" if isinstance(value, float) else f"{key}={value}")
    return found

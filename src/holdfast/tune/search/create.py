"""Searchers by name."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from holdfast.api.deprecated import warn_user
from holdfast.errors import ConfigError
from holdfast.tune.search.searcher import Searcher

_HOMES = {
    "variant_generator": ("basic_variant", "BasicVariantGenerator"),
    "random": ("basic_variant", "BasicVariantGenerator"),
    "optuna": ("optuna", "OptunaSearch"),
    "hyperopt": ("hyperopt", "HyperOptSearch"),
    "bohb": ("bohb", "TuneBOHB"),
    "ax": ("ax", "AxSearch"),
}
_ELSEWHERE = ("bayesopt", "hebo", "nevergrad", "zoopt")


def create_searcher(search_alg: str, **kwargs: Any) -> Searcher:
    """Return a searcher by its name; arguments it does not take are left out, with a warning."""
    if search_alg not in _HOMES:
        names = ", ".join(map(repr, sorted(_HOMES)))
        is_of_ray = search_alg in _ELSEWHERE
        raise ConfigError(
            f"search_alg={search_alg!r}: "
            + ("not there" if is_of_ray else "no searcher has this name")
            + f"; there are {names}",
            hint="'optuna', which can take other samplers too" if is_of_ray else None,
        )
    module, name = _HOMES[search_alg]
    kind: type[Searcher] = getattr(import_module(f"holdfast.tune.search.{module}"), name)
    known = inspect.signature(kind).parameters
    if any(one.kind is one.VAR_KEYWORD for one in known.values()):
        return kind(**kwargs)  # it knows best
    if unknown := [key for key in kwargs if key not in known]:
        warn_user(f"{name} takes no {', '.join(unknown)}; left out")
    return kind(**{key: value for key, value in kwargs.items() if key in known})

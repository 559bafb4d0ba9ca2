"""Creates searchers by name."""

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
_ONLY_IN_RAY = ("bayesopt", "hebo", "nevergrad", "zoopt")


def create_searcher(search_alg: str, **kwargs: Any) -> Searcher:
    """Return a searcher by its name; arguments it does not take are ignored, with a warning."""
    if search_alg not in _HOMES:
        names = ", ".join(map(repr, sorted(_HOMES)))
        is_of_ray = search_alg in _ONLY_IN_RAY
        problem = "not supported" if is_of_ray else "no searcher has this name"
        raise ConfigError(
            f"search_alg={search_alg!r}: {problem}; there are {names}",
            hint="use 'optuna', which takes other samplers too" if is_of_ray else None,
        )
    module, name = _HOMES[search_alg]
    kind: type[Searcher] = getattr(import_module(f"holdfast.tune.search.{module}"), name)
    parameters = inspect.signature(kind).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return kind(**kwargs)  # it checks them itself
    if unknown := [key for key in kwargs if key not in parameters]:
        warn_user(f"{name} has no argument {', '.join(unknown)}; ignored")
    return kind(**{key: value for key, value in kwargs.items() if key in parameters})

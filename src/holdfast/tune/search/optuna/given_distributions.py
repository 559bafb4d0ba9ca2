"""Translates search spaces with Optuna's own distributions to our domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import ConfigError
from holdfast.tune.search.domains import Categorical, Domain, Float, Integer, is_multiple
from holdfast.tune.search.optuna.distributions import optuna_module


def has_distributions(space: Any) -> bool:
    """Return whether a space contains a distribution of Optuna."""
    if isinstance(space, Mapping):
        return any(map(has_distributions, space.values()))
    return isinstance(space, optuna_module().distributions.BaseDistribution)


def without_distributions(space: Mapping[Any, Any], above: str = "") -> dict[Any, Any]:
    """Return a space with domains in place of distributions, and everything else as it is."""
    ours: dict[Any, Any] = {}
    for name, value in space.items():
        path = f"{above}{name}"
        if has_distributions(value) and isinstance(value, Mapping):
            ours[name] = without_distributions(value, f"{path}/")
        else:
            ours[name] = _domain(path, value) if has_distributions(value) else value
    return ours


def _domain(path: str, given: Any) -> Domain:
    kinds = optuna_module().distributions
    if isinstance(given, kinds.CategoricalDistribution):
        return Categorical(given.choices).uniform()
    is_whole = isinstance(given, kinds.IntDistribution)
    step = None if is_whole and given.step == 1 else given.step
    if step is not None and not is_multiple(given.low, step):
        raise ConfigError(
            f"space: {path} is {given}, whose values are not multiples of {step}",
            hint="write the space as a function: def space(trial): trial.suggest_float(…, step=…)",
        )
    if is_whole:
        whole = Integer(given.low, given.high + (step is None))  # Optuna includes `high`
        whole = whole.loguniform() if given.log else whole.uniform()
        return whole if step is None else whole.quantized(step)
    real = Float(given.low, given.high)
    real = real.loguniform() if given.log else real.uniform()
    return real if step is None else real.quantized(step)

"""Search spaces that are dicts of Optuna's own distributions, as our own domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import ConfigError
from holdfast.tune.search.domains import Categorical, Domain, Float, Integer, is_multiple
from holdfast.tune.search.optuna.distributions import optuna_module


def has_distributions(space: Any) -> bool:
    """Whether there is a distribution of Optuna in a space."""
    if isinstance(space, Mapping):
        return any(map(has_distributions, space.values()))
    return isinstance(space, optuna_module().distributions.BaseDistribution)


def without_distributions(space: Mapping[Any, Any], above: str = "") -> dict[Any, Any]:
    """Return a space with domains where it had distributions, and everything else as it is."""
    found: dict[Any, Any] = {}
    for name, value in space.items():
        path = f"{above}{name}"
        if has_distributions(value) and isinstance(value, Mapping):
            found[name] = without_distributions(value, f"{path}/")
        else:
            found[name] = _domain(path, value) if has_distributions(value) else value
    return found


def _domain(path: str, given: Any) -> Domain:
    kinds = optuna_module().distributions
    if isinstance(given, kinds.CategoricalDistribution):
        return Categorical(given.choices).uniform()
    is_whole = isinstance(given, kinds.IntDistribution)
    step = None if is_whole and given.step == 1 else given.step
    if step is not None and not is_multiple(given.low, step):
        raise ConfigError(
            f"space: {path} is {given}, whose steps are no multiples of {step}",
            hint="a function of a trial: def space(trial): trial.suggest_float(…, step=…)",
        )
    if is_whole:
        whole = Integer(given.low, given.high + (step is None))  # with its upper bound
        whole = whole.loguniform() if given.log else whole.uniform()
        return whole if step is None else whole.quantized(step)
    real = Float(given.low, given.high)
    real = real.loguniform() if given.log else real.uniform()
    return real if step is None else real.quantized(step)

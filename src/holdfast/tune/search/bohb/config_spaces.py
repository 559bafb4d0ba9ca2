"""Translates search spaces of the package ConfigSpace to our domains, without the package."""

from __future__ import annotations

from typing import Any

from holdfast.core.plain_data import own
from holdfast.errors import ConfigError
from holdfast.tune.search.domains import Categorical, Domain, Float, Integer


def is_config_space(space: Any) -> bool:
    """Return whether a space is one of ConfigSpace."""
    return type(space).__name__ == "ConfigurationSpace" and hasattr(space, "forbidden_clauses")


def space_of_config_space(space: Any) -> dict[str, Any]:
    """Return our form of a ConfigSpace; raise a `ConfigError` if a part has no equivalent."""
    for attribute in ("conditions", "forbidden_clauses"):
        if rules := list(getattr(space, attribute)):
            raise ConfigError(
                f"space has {attribute.replace('_', ' ')}, which are not supported: {rules[0]}",
                hint="tune.choice([{'kind': 'a', 'x': tune.uniform(0, 1)}, {'kind': 'b'}])",
            )
    return {str(name): _read(str(name), parameter) for name, parameter in space.items()}


def _read(name: str, given: Any) -> Any:
    """Return a hyperparameter as a domain, or a constant as its value."""
    kind, is_log = type(given).__name__, bool(getattr(given, "log", False))
    domain: Domain | None = None
    match kind:
        case "Constant" | "UnParametrizedHyperparameter":
            return own(given.value)
        case "UniformFloatHyperparameter":
            bounds = Float(float(given.lower), float(given.upper))
            domain = bounds.loguniform() if is_log else bounds.uniform()
        case "UniformIntegerHyperparameter":
            whole = Integer(int(given.lower), int(given.upper) + 1)  # ConfigSpace includes `upper`
            domain = whole.loguniform() if is_log else whole.uniform()
        case "NormalFloatHyperparameter" if not is_log:
            bounds = Float(float(given.lower), float(given.upper))
            domain = bounds.normal(float(given.mu), float(given.sigma))
        case "CategoricalHyperparameter" if given.weights is None or len(set(given.weights)) == 1:
            domain = Categorical(list(map(own, given.choices))).uniform()
        case "OrdinalHyperparameter":
            domain = Categorical(list(map(own, given.sequence))).uniform()
        case _:
            pass
    if domain is None:
        raise ConfigError(
            f"space: {name} is {given}, which is not supported",
            hint="use tune.uniform, tune.loguniform, tune.randint or tune.choice",
        )
    return domain

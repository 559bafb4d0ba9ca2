"""Search spaces of the package ConfigSpace, as our own domains; read without the package."""

from __future__ import annotations

from typing import Any

from holdfast.core.plain_data import own
from holdfast.errors import ConfigError
from holdfast.tune.search.domains import Categorical, Domain, Float, Integer


def is_config_space(space: Any) -> bool:
    """Whether a space is one of ConfigSpace."""
    return type(space).__name__ == "ConfigurationSpace" and hasattr(space, "forbidden_clauses")


def space_of_config_space(space: Any) -> dict[str, Any]:
    """Return a space of ConfigSpace as a space of ours; a `ConfigError` says what has no like."""
    for what in ("conditions", "forbidden_clauses"):
        if found := list(getattr(space, what)):
            raise ConfigError(
                f"space has {what.replace('_', ' ')}, which have no like here: {found[0]}",
                hint="tune.choice([{'kind': 'a', 'x': tune.uniform(0, 1)}, {'kind': 'b'}])",
            )
    return {str(name): _read(str(name), one) for name, one in space.items()}


def _read(name: str, given: Any) -> Any:
    """Return a hyperparameter as a domain, or as what it is if it does not change."""
    kind, is_log = type(given).__name__, bool(getattr(given, "log", False))
    domain: Domain | None = None
    match kind:
        case "Constant" | "UnParametrizedHyperparameter":
            return own(given.value)
        case "UniformFloatHyperparameter":
            bounds = Float(float(given.lower), float(given.upper))
            domain = bounds.loguniform() if is_log else bounds.uniform()
        case "UniformIntegerHyperparameter":
            whole = Integer(int(given.lower), int(given.upper) + 1)  # with its upper bound
            domain = whole.loguniform() if is_log else whole.uniform()
        case "NormalFloatHyperparameter" if not is_log:
            bounds = Float(float(given.lower), float(given.upper))
            domain = bounds.normal(float(given.mu), float(given.sigma))
        case "CategoricalHyperparameter" if given.weights is None or len(set(given.weights)) == 1:
            domain = Categorical([own(one) for one in given.choices]).uniform()
        case "OrdinalHyperparameter":
            domain = Categorical([own(one) for one in given.sequence]).uniform()
        case _:
            pass
    if domain is None:
        raise ConfigError(
            f"space: {name} is {given}, which has no like here",
            hint="one of tune.uniform, tune.loguniform, tune.randint, tune.choice",
        )
    return domain

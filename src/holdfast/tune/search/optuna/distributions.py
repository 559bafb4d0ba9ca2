"""Translates domains and their values between us and Optuna.

The translation is exact: Optuna's values can be read back from a config.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from holdfast.core.plain_data import is_json_leaf
from holdfast.errors import ConfigError
from holdfast.tune.search.domains import (
    Domain,
    Float,
    Integer,
    LogUniform,
    Normal,
    Quantized,
    multiple,
    steps,
)
from holdfast.tune.search.points import params_of
from holdfast.tune.search.seeding import number_for
from holdfast.tune.search.variant_generator import Choice, Drawn, Group, Node, Plain


def optuna_module() -> Any:
    """Import and return Optuna; raise a ConfigError that says what to install if it is missing."""
    try:
        return import_module("optuna")
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise  # Optuna is installed; a dependency is missing
        raise ConfigError(
            "OptunaSearch needs Optuna, which is not installed", hint="pip install holdfast[optuna]"
        ) from None


@dataclass(frozen=True)
class Coded:
    """One searched value for Optuna: its distribution, and how its values differ from ours.

    Multiples on a log scale are counted in steps, because Optuna does not support steps there.
    Options that are not plain values, or that Optuna cannot tell apart, are given by their index.
    """

    distribution: Any
    q: float = 0.0
    labels: tuple[Any, ...] | None = None

    @classmethod
    def of_domain(cls, name: str, domain: Domain) -> Coded:
        """Return a domain of numbers; raise a ConfigError if Optuna cannot search it."""
        distributions = optuna_module().distributions
        assert isinstance(domain, Float | Integer)
        sampler, q = domain.get_sampler(), None
        if isinstance(sampler, Quantized):
            q, sampler = sampler.q, sampler.sampler
        if isinstance(sampler, Normal):
            raise ConfigError(
                f"{name}: Optuna does not search normal distributions",
                hint="use uniform over the values that make sense, or HyperOptSearch",
            )
        is_log = isinstance(sampler, LogUniform)
        if isinstance(domain, Float):
            if q is not None and is_log:
                ends = steps(domain.lower, q), steps(domain.upper, q)
                return cls(distributions.IntDistribution(*ends, log=True), q=q)
            bounds = domain.lower, domain.upper
            return cls(distributions.FloatDistribution(*bounds, log=is_log, step=q))
        if q is not None and is_log:
            q = int(q)
            ends = domain.lower // q, domain.last // q
            return cls(distributions.IntDistribution(*ends, log=True), q=q)
        ends = domain.lower, domain.last
        return cls(distributions.IntDistribution(*ends, log=is_log, step=int(q or 1)))

    @classmethod
    def of_options(cls, options: tuple[Node, ...]) -> Coded:
        """Return several options."""
        labels: tuple[Any, ...] = tuple(range(len(options)))
        values = [option.value for option in options if isinstance(option, Plain)]
        if len(values) == len(options) and all(map(is_json_leaf, values)):
            labels = tuple(values) if _are_distinct(values) else labels
        distribution = optuna_module().distributions.CategoricalDistribution(labels)
        return cls(distribution, labels=labels)

    def ours(self, param: Any, domain: Domain | None) -> Any:
        """Return our value, or the index of the option, for Optuna's value."""
        if self.labels is not None:
            return self.labels.index(param)
        assert domain is not None
        if self.q:
            return domain.cast(
                multiple(param, self.q) if isinstance(domain, Float) else param * self.q
            )
        return param

    def theirs(self, value: Any) -> Any:
        """Return Optuna's value for our value, or for the index of an option."""
        if self.labels is not None:
            return self.labels[value]
        return steps(value, self.q) if self.q else value

    def asked(self, trial: Any, name: str) -> Any:
        """Return the value that an Optuna trial suggests."""
        if self.labels is not None:
            return trial.suggest_categorical(name, self.labels)
        numbers = self.distribution
        suggest = trial.suggest_int if isinstance(numbers.low, int) else trial.suggest_float
        if numbers.log:
            return suggest(name, numbers.low, numbers.high, log=True)
        return suggest(name, numbers.low, numbers.high, step=numbers.step)


def _are_distinct(values: list[Any]) -> bool:
    """Return whether all values are different for Optuna, to which 1 and True are the same."""
    return len(set(values)) == len(values) and all(value == value for value in values)


class Codes:
    """All searched values, as Optuna knows them, by name."""

    def __init__(self, tree: Node) -> None:
        self._tree = tree
        self._codes: dict[str, Coded] = {}
        self._take(tree)

    def encoded(self, config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the values of a config, and their distributions, for Optuna."""
        params = params_of(self._tree, config)
        return (
            {name: self._codes[name].theirs(value) for name, value in params.items()},
            {name: self._codes[name].distribution for name in params},
        )

    def picker(self, trial: Any, seed: int, number: int) -> OptunaPicker:
        """Return a picker that asks an Optuna trial."""
        return OptunaPicker(self._codes, trial, seed, number)

    def _take(self, node: Node) -> None:
        match node:
            case Drawn(name, domain):
                self._codes[name] = Coded.of_domain(name, domain)
            case Choice(name, options):
                self._codes[name] = Coded.of_options(options)
                for option in options:
                    self._take(option)
            case Group(_, children):
                for _, child in children:
                    self._take(child)
            case _:
                pass


@dataclass(frozen=True, slots=True)
class OptunaPicker:
    """Picks the values that an Optuna trial suggests."""

    codes: dict[str, Coded]
    trial: Any
    root: int
    number: int

    def value(self, name: str, domain: Domain) -> Any:
        code = self.codes[name]
        return code.ours(code.asked(self.trial, name), domain)

    def option(self, name: str, count: int) -> int:
        code = self.codes[name]
        return int(code.ours(code.asked(self.trial, name), None))

    def seed(self, name: str) -> int:
        return number_for(self.root, self.number, name)


def check_params(params: Any) -> None:
    """Raise a ConfigError unless a function that defines a space returned a dict of values."""
    if not isinstance(params, dict) or not all(isinstance(key, str) for key in params):
        raise ConfigError(
            f"the function that defines the search space returned {params!r}",
            hint="return nothing, or a dict of further values by name",
        )

"""Search domains as Optuna knows them, and the values on both sides.

A value is the same before and after: what Optuna said can be read off a config again.
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
    """Return Optuna, loading it now; say what to install if it is not there."""
    try:
        return import_module("optuna")
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise  # it is there; something it needs is not
        raise ConfigError(
            "OptunaSearch needs Optuna, which is not installed", hint="pip install holdfast[optuna]"
        ) from None


@dataclass(frozen=True)
class Coded:
    """One searched value for Optuna: its distribution, and how it differs from ours.

    Multiples on a logarithmic scale are counted in steps, because Optuna has no steps there.
    Options that are no plain values, or that Optuna could not tell apart, are known by their place.
    """

    distribution: Any
    q: float = 0.0
    labels: tuple[Any, ...] | None = None

    @classmethod
    def of_domain(cls, name: str, domain: Domain) -> Coded:
        """Return a domain of numbers; a ConfigError if Optuna cannot search it."""
        distributions = optuna_module().distributions
        assert isinstance(domain, Float | Integer)
        sampler, q = domain.get_sampler(), None
        if isinstance(sampler, Quantized):
            q, sampler = sampler.q, sampler.sampler
        if isinstance(sampler, Normal):
            raise ConfigError(
                f"{name}: Optuna does not search normal distributions",
                hint="uniform over the values that make sense, or HyperOptSearch",
            )
        is_log = isinstance(sampler, LogUniform)
        if isinstance(domain, Float):
            if q is not None and is_log:
                ends = steps(domain.lower, q), steps(domain.upper, q)
                return cls(distributions.IntDistribution(*ends, log=True), q=q)
            found = distributions.FloatDistribution(domain.lower, domain.upper, log=is_log, step=q)
            return cls(found)
        if q is not None and is_log:
            q = int(q)
            ends = domain.lower // q, domain.last // q
            return cls(distributions.IntDistribution(*ends, log=True), q=q)
        step = int(q or 1)
        found = distributions.IntDistribution(domain.lower, domain.last, log=is_log, step=step)
        return cls(found)

    @classmethod
    def of_options(cls, options: tuple[Node, ...]) -> Coded:
        """Return several options."""
        labels: tuple[Any, ...] = tuple(range(len(options)))
        values = [option.value for option in options if isinstance(option, Plain)]
        if len(values) == len(options) and all(map(is_json_leaf, values)):
            labels = tuple(values) if _tell_apart(values) else labels
        distribution = optuna_module().distributions.CategoricalDistribution(labels)
        return cls(distribution, labels=labels)

    def ours(self, param: Any, domain: Domain | None) -> Any:
        """Return the value, or the place of the option, that Optuna means."""
        if self.labels is not None:
            return self.labels.index(param)
        assert domain is not None
        if self.q:
            return domain.cast(
                multiple(param, self.q) if isinstance(domain, Float) else param * self.q
            )
        return param

    def theirs(self, value: Any) -> Any:
        """Return what Optuna calls a value, or the option at a place."""
        if self.labels is not None:
            return self.labels[value]
        return steps(value, self.q) if self.q else value

    def asked(self, trial: Any, name: str) -> Any:
        """Return what a trial of Optuna says."""
        there = self.distribution
        if self.labels is not None:
            return trial.suggest_categorical(name, self.labels)
        ask = trial.suggest_int if isinstance(there.low, int) else trial.suggest_float
        if there.log:
            return ask(name, there.low, there.high, log=True)
        return ask(name, there.low, there.high, step=there.step)


def _tell_apart(values: list[Any]) -> bool:
    """Whether all values are different for Optuna, to which 1 and True are the same."""
    return len(set(values)) == len(values) and all(value == value for value in values)


class Codes:
    """All that is searched for, as Optuna knows it, by name."""

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
        """Return one who asks a trial of Optuna."""
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
    """Picks what a trial of Optuna says."""

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
    """Raise a ConfigError unless what a space written as a function returned is a dict."""
    if not isinstance(params, dict) or not all(isinstance(key, str) for key in params):
        raise ConfigError(
            f"the function that is the search space returned {params!r}",
            hint="return nothing, or a dict of further values by name",
        )

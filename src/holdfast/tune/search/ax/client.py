"""Translates between our search spaces and Ax, which is loaded when it is first needed."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.tune.search.dimension import Dimension
from holdfast.tune.search.domains import (
    Categorical,
    Domain,
    Float,
    Integer,
    LogUniform,
    Normal,
    Quantized,
)
from holdfast.tune.search.seeding import seeded_globals
from holdfast.tune.search.variant_generator import Choice, Drawn, Group, Node

OBJECTIVE = "objective"  # the metric's name for Ax, which would parse the real one as an expression
_OUTCOME = re.compile(r"^\s*([A-Za-z_]\w*)\s*(<=|>=)\s*[-+.\deE]+\s*$")

Line = Domain | int  # the domain of a number, or the count of options


@dataclass(frozen=True)
class Limits:
    """Constraints on parameters and on metrics."""

    parameters: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """A config and its metrics, with the objective as ""; None while it is running."""

    params: Mapping[str, Any]
    outcome: Mapping[str, float] | None


def must_be_installed() -> None:
    """Raise a `ConfigError` that says what to install if Ax is missing; load nothing."""
    if find_spec("ax") is None:
        raise ConfigError(
            "AxSearch needs Ax, which is not installed",
            hint="pip install holdfast[ax], or search_alg=OptunaSearch(), which is much smaller",
        )


def ax_module(name: str) -> Any:
    """Return a module of Ax, loading it now."""
    must_be_installed()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ax's dependencies warn, and users may make warnings raise
        return import_module(f"ax.{name}")


def parameters_of(node: Node) -> dict[str, Line]:
    """Return the parameters that every config has, by name, if they have more than one value."""
    match node:
        case Drawn(name, domain):
            assert isinstance(domain, Float | Integer)
            if isinstance(_sampler(domain)[0], Normal):
                raise ConfigError(
                    f"{name}: Ax does not search normal distributions",
                    hint="use uniform over the values that make sense, or HyperOptSearch",
                )
            last = domain.last if isinstance(domain, Integer) else domain.upper
            return {name: domain} if domain.lower < last else {}
        case Choice(name, options):
            return {name: len(options)} if len(options) > 1 else {}
        case Group(_, children):
            lines: dict[str, Line] = {}
            for _, child in children:
                lines |= parameters_of(child)
            return lines
        case _:
            return {}


def check_limits(lines: Mapping[str, Line], limits: Limits) -> None:
    """Raise a `ConfigError` if Ax cannot work with this space and these constraints."""
    for outcome in limits.outcomes:
        if not _OUTCOME.match(outcome):
            raise ConfigError(
                f"outcome_constraints: {outcome!r} is not a metric and a bound",
                hint="'size <= 1.25'",
            )
    try:
        _client(lines, limits, 0, has_model=False)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"Ax refuses the search space: {error}") from error


def metrics_in(limits: Limits) -> list[str]:
    """Return the metrics in the constraints on outcomes."""
    matches = map(_OUTCOME.match, limits.outcomes)
    return sorted({match.group(1) for match in matches if match is not None})


def propose(
    lines: Mapping[str, Line],
    points: Sequence[Point],
    limits: Limits,
    seed: int,
    *,
    has_model: bool,
) -> dict[str, Any]:
    """Return values for `lines`, always the same for the same arguments."""
    if not lines:
        return {}
    ax_module("api.client")
    with _quietly(), seeded_globals(seed):
        client = _client(lines, limits, seed, has_model=has_model)
        for point in points:
            params = {name: _to_ax(line, point.params[name]) for name, line in lines.items()}
            index = client.attach_trial(parameters=params)
            if point.outcome is not None:
                data = {name or OBJECTIVE: (value, 0.0) for name, value in point.outcome.items()}
                client.complete_trial(trial_index=index, raw_data=data)
        with _seeded_torch(seed):
            [proposed] = client.get_next_trials(max_trials=1).values()
    return {name: _from_ax(line, proposed[name]) for name, line in lines.items()}


def space_of_list(space: Sequence[Any]) -> dict[str, Any]:
    """Return our form of a search space that is a list of Ax's parameter dicts."""
    ours = {}
    for parameter in space:
        match parameter:
            case {"name": str(name), "type": "fixed", "value": value}:
                ours[name] = value
            case {"name": str(name), "type": "choice", "values": values}:
                ours[name] = Categorical(list(values)).uniform()
            case {"name": str(name), "type": "range", "bounds": [low, high]}:
                whole = isinstance(low, int) and isinstance(high, int)
                is_int = parameter.get("value_type", "int" if whole else "float") == "int"
                domain: Any = Integer(low, high + 1) if is_int else Float(low, high)
                is_log = parameter.get("log_scale")
                ours[name] = domain.loguniform() if is_log else domain.uniform()
            case _:
                raise ConfigError(
                    f"space has {shown(parameter)}, which is not a parameter of Ax",
                    hint="{'name': 'x', 'type': 'range', 'bounds': [0.0, 1.0]}",
                )
    return ours


def _client(lines: Mapping[str, Line], limits: Limits, seed: int, *, has_model: bool) -> Any:
    client_class = ax_module("api.client").Client
    with _quietly():
        client = client_class(random_seed=seed)
        client.configure_experiment(
            parameters=[_config(name, line) for name, line in lines.items()],
            parameter_constraints=list(limits.parameters),
        )
        client.configure_optimization(
            objective=f"-{OBJECTIVE}", outcome_constraints=list(limits.outcomes)
        )
        client.configure_generation_strategy(
            method="fast" if has_model else "random_search",
            initialization_budget=0 if has_model else None,
            initialization_random_seed=seed,
            initialize_with_center=False,
        )
    return client


def _config(name: str, line: Line) -> Any:
    configs = ax_module("api.configs")
    if isinstance(line, int):
        return configs.ChoiceParameterConfig(
            name=name, values=list(map(str, range(line))), parameter_type="str"
        )
    assert isinstance(line, Float | Integer)
    is_log = isinstance(_sampler(line)[0], LogUniform)
    last = line.last if isinstance(line, Integer) else line.upper
    return configs.RangeParameterConfig(
        name=name,
        bounds=(line.lower, last),
        parameter_type="int" if isinstance(line, Integer) else "float",
        scaling="log" if is_log else "linear",
    )


def _to_ax(line: Line, value: Any) -> Any:
    return str(value) if isinstance(line, int) else value


def _from_ax(line: Line, value: Any) -> Any:
    """Return the nearest value of a domain: Ax does not support steps on a log scale."""
    if isinstance(line, int):
        return int(value)
    dimension = Dimension.of(line)
    return dimension.value(dimension.place(value))


def _sampler(domain: Domain) -> tuple[Any, float]:
    sampler = domain.get_sampler()
    return (sampler.sampler, sampler.q) if isinstance(sampler, Quantized) else (sampler, 0.0)


@contextmanager
def _seeded_torch(seed: int) -> Iterator[None]:
    """Seed torch and limit it to one thread; restore both afterwards.

    With matrices this small several threads are slower, all the more where trials need the cores.
    """
    torch = import_module("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence Ax's warnings and log lines below errors."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "ax"]
    before = [(logger, logger.level) for logger in map(logging.getLogger, names)]
    for logger, _ in before:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in before:
            logger.setLevel(level)

"""What Ax is asked, and in which words; it is loaded when it is first asked."""

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

OBJECTIVE = "objective"  # what the metric is called towards Ax, which reads names as expressions
_OUTCOME = re.compile(r"^\s*([A-Za-z_]\w*)\s*(<=|>=)\s*[-+.\deE]+\s*$")

Line = Domain | int  # a number, or how many options there are


@dataclass(frozen=True)
class Limits:
    """What must hold for parameters, and for metrics."""

    parameters: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """What was tried, and the metrics that came of it, the objective as ""; None is not yet."""

    params: Mapping[str, Any]
    outcome: Mapping[str, float] | None


def must_be_installed() -> None:
    """Raise a `ConfigError` that says what to install if Ax is not there; load nothing."""
    if find_spec("ax") is None:
        raise ConfigError(
            "AxSearch needs Ax, which is not installed",
            hint="pip install holdfast[ax], or search_alg=OptunaSearch(), which needs far less",
        )


def ax_module(name: str) -> Any:
    """Return a module of Ax, loading it now."""
    must_be_installed()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it is made of; some have them raise
        return import_module(f"ax.{name}")


def parameters_of(node: Node) -> dict[str, Line]:
    """Return what every config has, by name, as far as there is anything to choose."""
    match node:
        case Drawn(name, domain):
            assert isinstance(domain, Float | Integer)
            if isinstance(_sampler(domain)[0], Normal):
                raise ConfigError(
                    f"{name}: Ax does not search normal distributions",
                    hint="uniform over the values that make sense, or HyperOptSearch",
                )
            last = domain.last if isinstance(domain, Integer) else domain.upper
            return {name: domain} if domain.lower < last else {}
        case Choice(name, options):
            return {name: len(options)} if len(options) > 1 else {}
        case Group(_, children):
            found: dict[str, Line] = {}
            for _, child in children:
                found |= parameters_of(child)
            return found
        case _:
            return {}


def check_limits(lines: Mapping[str, Line], limits: Limits) -> None:
    """Raise a `ConfigError` if Ax cannot work with this space and these constraints."""
    for one in limits.outcomes:
        if not _OUTCOME.match(one):
            raise ConfigError(
                f"outcome_constraints: {one!r} is not a metric and a bound", hint="'size <= 1.25'"
            )
    try:
        _client(lines, limits, 0, has_model=False)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"Ax refuses the search space: {error}") from error


def metrics_in(limits: Limits) -> list[str]:
    """Return the metrics that outcomes are constrained by."""
    found = (_OUTCOME.match(one) for one in limits.outcomes)
    return sorted({one.group(1) for one in found if one is not None})


def propose(
    lines: Mapping[str, Line],
    points: Sequence[Point],
    limits: Limits,
    seed: int,
    *,
    has_model: bool,
) -> dict[str, Any]:
    """Return values for `lines`: the same ones for the same arguments."""
    if not lines:
        return {}
    ax_module("api.client")
    with _quietly(), seeded_globals(seed):
        client = _client(lines, limits, seed, has_model=has_model)
        for point in points:
            theirs = {name: _theirs(line, point.params[name]) for name, line in lines.items()}
            index = client.attach_trial(parameters=theirs)
            if point.outcome is not None:
                told = {name or OBJECTIVE: (value, 0.0) for name, value in point.outcome.items()}
                client.complete_trial(trial_index=index, raw_data=told)
        with _torch_to_itself(seed):
            [found] = client.get_next_trials(max_trials=1).values()
    return {name: _ours(line, found[name]) for name, line in lines.items()}


def space_of_list(space: Sequence[Any]) -> dict[str, Any]:
    """Return a search space that is a list of dicts, as Ax has them, as one of ours."""
    found = {}
    for one in space:
        match one:
            case {"name": str(name), "type": "fixed", "value": value}:
                found[name] = value
            case {"name": str(name), "type": "choice", "values": values}:
                found[name] = Categorical(list(values)).uniform()
            case {"name": str(name), "type": "range", "bounds": [low, high]}:
                whole = isinstance(low, int) and isinstance(high, int)
                is_int = one.get("value_type", "int" if whole else "float") == "int"
                domain: Any = Integer(low, high + 1) if is_int else Float(low, high)
                found[name] = domain.loguniform() if one.get("log_scale") else domain.uniform()
            case _:
                raise ConfigError(
                    f"space has {shown(one)}, which is no parameter of Ax",
                    hint="{'name': 'x', 'type': 'range', 'bounds': [0.0, 1.0]}",
                )
    return found


def _client(lines: Mapping[str, Line], limits: Limits, seed: int, *, has_model: bool) -> Any:
    made = ax_module("api.client").Client
    with _quietly():
        client = made(random_seed=seed)
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
            name=name, values=[str(at) for at in range(line)], parameter_type="str"
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


def _theirs(line: Line, value: Any) -> Any:
    return str(value) if isinstance(line, int) else value


def _ours(line: Line, value: Any) -> Any:
    """Return a value that can come out of a domain: Ax knows nothing of multiples on logs."""
    if isinstance(line, int):
        return int(value)
    there = Dimension.of(line)
    return there.value(there.place(value))


def _sampler(domain: Domain) -> tuple[Any, float]:
    sampler = domain.get_sampler()
    return (sampler.sampler, sampler.q) if isinstance(sampler, Quantized) else (sampler, 0.0)


@contextmanager
def _torch_to_itself(seed: int) -> Iterator[None]:
    """Have torch draw by `seed`, in one thread; as it was, after.

    Several threads are slower with matrices this small, the more so where trials need the cores.
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
    """Keep what Ax has to say to itself, which is much."""
    known = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "ax"]
    before = [(voice, voice.level) for voice in map(logging.getLogger, known)]
    for voice, _ in before:
        voice.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for voice, level in before:
            voice.setLevel(level)

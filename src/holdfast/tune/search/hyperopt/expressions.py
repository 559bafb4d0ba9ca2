"""Translates search spaces written with HyperOpt's `hp` to our domains.

An expression of HyperOpt is a graph; the names of its nodes are enough to read it without HyperOpt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import ConfigError
from holdfast.tune.search.domains import Categorical, Domain, Float, Integer
from holdfast.tune.search.plain import name_of

_PACKAGE = "hyperopt."
_HINT = "use tune.uniform(0, 1) instead of hp.uniform('x', 0, 1), and so on"


def has_expressions(space: Any) -> bool:
    """Return whether a space contains HyperOpt expressions."""
    if isinstance(space, Mapping):
        return any(map(has_expressions, space.values()))
    if isinstance(space, list | tuple):
        return any(map(has_expressions, space))
    return type(space).__module__.startswith(_PACKAGE)


def without_expressions(space: Any) -> Any:
    """Return our form of a HyperOpt space; raise a `ConfigError` if a part is not supported."""
    value, _ = _read(space, ())
    if not isinstance(value, dict):
        raise ConfigError(
            f"space is {value!r}, not a dict", hint="space={'model': hp.choice('model', …)}"
        )
    return value


def _read(node: Any, steps: tuple[Any, ...]) -> tuple[Any, set[str]]:
    """Return a part of a space, and the labels in it.

    A label stands for the same value wherever it is used, but our values are drawn by place.
    """
    if isinstance(node, Mapping):
        return _group(dict(node), steps, dict)
    if isinstance(node, list | tuple):
        items = dict(enumerate(node))
        return _group(items, steps, lambda parts: type(node)(parts.values()))
    if not type(node).__module__.startswith(_PACKAGE):
        return node, set()
    match node.name:
        case "literal":
            return node.obj, set()
        case "dict":
            return _group(dict(node.named_args), steps, dict)
        case "pos_args":
            items = dict(enumerate(node.pos_args))
            return _group(items, steps, lambda parts: list(parts.values()))
        case "switch":
            return _options(node, steps)
        case "float" | "int":
            return _number(node, steps)
        case _:
            raise _unsupported(steps, f"{node.name}(…)")


def _group(
    items: dict[Any, Any], steps: tuple[Any, ...], form: Callable[[dict[Any, Any]], Any]
) -> tuple[Any, set[str]]:
    parts: dict[Any, Any] = {}
    labels: set[str] = set()
    for key, item in items.items():
        parts[key], new_labels = _read(item, (*steps, key))
        if twice := labels & new_labels:
            raise ConfigError(
                f"space uses {min(twice)!r} in two places at once, which must be the same value",
                hint="write one as tune.sample_from(lambda config: config[…]) in param_space",
            )
        labels |= new_labels
    return form(parts), labels


def _options(node: Any, steps: tuple[Any, ...]) -> tuple[Any, set[str]]:
    index, *options = node.pos_args
    label, drawn = index.pos_args
    if drawn.name == "categorical":
        shares = [share.obj for share in drawn.pos_args[0].pos_args]
        if len(set(shares)) > 1:
            raise _unsupported(steps, f"hp.pchoice with the shares {shares}")
    values, labels = [], {label.obj}
    for place, option in enumerate(options):
        value, new_labels = _read(option, (*steps, (place,)))
        values.append(value)
        labels |= new_labels
    return Categorical(values).uniform(), labels


def _number(node: Any, steps: tuple[Any, ...]) -> tuple[Domain, set[str]]:
    inside, is_whole = node.pos_args[0], node.name == "int"
    if inside.name == "float":
        inside = inside.pos_args[0]
    if inside.name != "hyperopt_param":
        raise _unsupported(steps, f"{node.name}({inside.name}(…))")
    label, drawn = inside.pos_args
    nodes = [*drawn.pos_args, *(argument for _, argument in drawn.named_args)]
    if any(argument.name != "literal" for argument in nodes):
        raise _unsupported(steps, f"hp.{drawn.name} of values that are drawn themselves")
    arguments = [argument.obj for argument in nodes]
    domain = _domain(drawn.name, arguments, is_whole=is_whole)
    if domain is None:
        raise _unsupported(steps, f"hp.{drawn.name}{tuple(arguments)}")
    return domain, {label.obj}


def _domain(kind: str, arguments: list[Any], *, is_whole: bool) -> Domain | None:
    """Return the domain of a distribution of HyperOpt, None if there is none."""
    match kind, arguments:
        case "uniform", [low, high]:
            return Float(low, high).uniform()
        case "loguniform", [low, high]:
            return Float(math.exp(low), math.exp(high)).loguniform()
        case "normal", [mean, sd]:
            return Float(None, None).normal(mean, sd)
        case "qnormal", [mean, sd, q]:
            return Float(None, None).normal(mean, sd).quantized(q)
        case "quniform", [low, high, q]:
            # HyperOpt draws and then rounds, so the bounds need not be multiples.
            first, last = round(low / q) * q, round(high / q) * q
            if is_whole:
                return Integer(int(first), int(last)).uniform().quantized(int(q))
            return Float(first, last).uniform().quantized(q)
        case "qloguniform", [low, high, q]:
            first, last = round(math.exp(low) / q) * q, round(math.exp(high) / q) * q
            return Float(first, last).loguniform().quantized(q) if first > 0 else None
        case "randint", [high]:
            return Integer(0, high).uniform()
        case "randint", [low, high]:
            return Integer(low, high).uniform()
        case _:
            return None


def _unsupported(steps: tuple[Any, ...], text: str) -> ConfigError:
    return ConfigError(f"space: {name_of(steps)} is {text}, which is not supported", hint=_HINT)

"""Search spaces that were written with HyperOpt's `hp`, as our own domains.

An expression of HyperOpt is a graph. It is read by the names of its nodes, without HyperOpt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import ConfigError
from holdfast.tune.search.domains import Categorical, Domain, Float, Integer
from holdfast.tune.search.plain import name_of

_HOME = "hyperopt."
_INSTEAD = "tune.uniform(0, 1) instead of hp.uniform('x', 0, 1), and so on"


def has_expressions(space: Any) -> bool:
    """Whether there is anything of HyperOpt in a space."""
    if isinstance(space, Mapping):
        return any(map(has_expressions, space.values()))
    if isinstance(space, list | tuple):
        return any(map(has_expressions, space))
    return type(space).__module__.startswith(_HOME)


def without_expressions(space: Any) -> Any:
    """Return a space of HyperOpt as a space of ours; a `ConfigError` says what has no like here."""
    value, _ = _read(space, ())
    if not isinstance(value, dict):
        raise ConfigError(
            f"space is {value!r}, and a config is a dict", hint="{'model': hp.choice('model', …)}"
        )
    return value


def _read(node: Any, steps: tuple[Any, ...]) -> tuple[Any, set[str]]:
    """Return a part of a space, and the labels in it.

    A label stands for one value wherever it is used, but our values are drawn by their places.
    """
    if isinstance(node, Mapping):
        return _group(dict(node), steps, dict)
    if isinstance(node, list | tuple):
        items = dict(enumerate(node))
        return _group(items, steps, lambda found: type(node)(found.values()))
    if not type(node).__module__.startswith(_HOME):
        return node, set()
    match node.name:
        case "literal":
            return node.obj, set()
        case "dict":
            return _group(dict(node.named_args), steps, dict)
        case "pos_args":
            items = dict(enumerate(node.pos_args))
            return _group(items, steps, lambda found: list(found.values()))
        case "switch":
            return _options(node, steps)
        case "float" | "int":
            return _number(node, steps)
        case _:
            raise _unlike(steps, f"{node.name}(…)")


def _group(
    items: dict[Any, Any], steps: tuple[Any, ...], form: Callable[[dict[Any, Any]], Any]
) -> tuple[Any, set[str]]:
    found: dict[Any, Any] = {}
    labels: set[str] = set()
    for key, item in items.items():
        found[key], more = _read(item, (*steps, key))
        if twice := labels & more:
            raise ConfigError(
                f"space uses {min(twice)!r} in two places at once, which must be the same value",
                hint="one of them as tune.sample_from(lambda config: config[…]) in param_space",
            )
        labels |= more
    return form(found), labels


def _options(node: Any, steps: tuple[Any, ...]) -> tuple[Any, set[str]]:
    which, *options = node.pos_args
    label, drawn = which.pos_args
    if drawn.name == "categorical":
        shares = [share.obj for share in drawn.pos_args[0].pos_args]
        if len(set(shares)) > 1:
            raise _unlike(steps, f"hp.pchoice with the shares {shares}")
    found, labels = [], {label.obj}
    for place, option in enumerate(options):
        value, more = _read(option, (*steps, (place,)))
        found.append(value)
        labels |= more
    return Categorical(found).uniform(), labels


def _number(node: Any, steps: tuple[Any, ...]) -> tuple[Domain, set[str]]:
    inside, is_whole = node.pos_args[0], node.name == "int"
    if inside.name == "float":
        inside = inside.pos_args[0]
    if inside.name != "hyperopt_param":
        raise _unlike(steps, f"{node.name}({inside.name}(…))")
    label, drawn = inside.pos_args
    given = [*drawn.pos_args, *(value for _, value in drawn.named_args)]
    if any(one.name != "literal" for one in given):
        raise _unlike(steps, f"hp.{drawn.name} of values that are drawn themselves")
    domain = _domain(drawn.name, [one.obj for one in given], is_whole=is_whole)
    if domain is None:
        raise _unlike(steps, f"hp.{drawn.name}{tuple(one.obj for one in given)}")
    return domain, {label.obj}


def _domain(kind: str, given: list[Any], *, is_whole: bool) -> Domain | None:
    """Return the domain like a distribution of HyperOpt, None if there is none."""
    match kind, given:
        case "uniform", [low, high]:
            return Float(low, high).uniform()
        case "loguniform", [low, high]:
            return Float(math.exp(low), math.exp(high)).loguniform()
        case "normal", [mean, sd]:
            return Float(None, None).normal(mean, sd)
        case "qnormal", [mean, sd, q]:
            return Float(None, None).normal(mean, sd).quantized(q)
        case "quniform", [low, high, q]:
            # It is drawn and then rounded, so that the ends need not be multiples.
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


def _unlike(steps: tuple[Any, ...], what: str) -> ConfigError:
    return ConfigError(f"space: {name_of(steps)} is {what}, which has no like here", hint=_INSTEAD)

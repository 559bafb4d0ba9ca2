"""Relates configs to their search space: points to evaluate, searched values, trial tags."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.api.deprecated import warn_user
from holdfast.core.config_data import Mark
from holdfast.core.plain_data import own, same
from holdfast.errors import ConfigError
from holdfast.tune.search.plain import flattened_config, name_of
from holdfast.tune.search.variant_generator import (
    Call,
    Choice,
    Drawn,
    GridOf,
    Group,
    Node,
    Plain,
    Steps,
)

_UNFIT_FOR_NAMES = re.compile(r"[^a-zA-Z0-9_.-]+")
_TAG_VALUE_LENGTH = 40


def params_of(node: Node, value: Any) -> dict[str, Any]:
    """Return the picks that lead to `value`, by name: numbers, and the indexes of options.

    Values that are missing, or do not fit the space, are left out.
    """
    match node:
        case Drawn(name, domain):
            value = own(value)
            return {name: domain.cast(value)} if domain.is_valid(value) else {}
        case Choice(name, options):
            place = option_of(options, value)
            return {} if place is None else {name: place} | params_of(options[place], value)
        case Group(kind, children):
            params: dict[str, Any] = {}
            for key, child in children:
                if _has(kind, key, value):
                    params |= params_of(child, value[key])
            return params
        case _:
            return {}


def option_of(options: tuple[Node, ...], value: Any) -> int | None:
    """Return the index of the option that is `value`; options of the same type are preferred."""
    for strict in (True, False):
        for place, option in enumerate(options):
            if fits(option, value, strict=strict):
                return place
    return None


def fits(node: Node, value: Any, *, strict: bool = True) -> bool:
    """Return whether a tree can produce `value`."""
    match node:
        case Plain(constant):
            return same(constant, value) or (not strict and _equal(constant, value))
        case Drawn(_, domain):
            return domain.is_valid(own(value))
        case Choice(_, options) | GridOf(_, options):
            return any(fits(option, value, strict=strict) for option in options)
        case Call():
            return True
        case Group(kind, children):
            if kind is dict:
                if not isinstance(value, Mapping) or value.keys() != {key for key, _ in children}:
                    return False
            elif not isinstance(value, list | tuple) or len(value) != len(children):
                return False
            return all(fits(child, value[key], strict=strict) for key, child in children)


def preset(node: Node, point: Any, steps: Steps = (), *, must_fit: bool = False) -> Node:
    """Return the tree in which the values of a point are fixed.

    A value that is not an option of a grid or choice is used as it is, with a warning, unless it
    `must_fit`.
    """
    if isinstance(node, Group) and _is_container(node.kind, point):
        searched = {key for key, _ in node.children}
        keys = point.keys() if node.kind is dict else range(len(point))
        for key in keys:
            if key not in searched:
                raise ConfigError(
                    f"points_to_evaluate: {name_of((*steps, key))!r} is not in the search space, "
                    f"which has {sorted(map(str, searched))}"
                )
        children = tuple(
            (key, child)
            if key not in keys
            else (key, preset(child, point[key], (*steps, key), must_fit=must_fit))
            for key, child in node.children
        )
        return Group(node.kind, children, math.prod(child.size for _, child in children))
    point = own(point)
    if isinstance(node, Plain) and _is_part(point, node.value):
        return node
    is_option = isinstance(node, Choice | GridOf)
    if not fits(node, point, strict=False) and is_option and not must_fit:
        warn_user(
            f"points_to_evaluate: {name_of(steps)}={point!r} is not an option of the search space"
            f" ({_shown(node)}), and is tried as it is"
        )
    elif not fits(node, point, strict=False):
        raise ConfigError(
            f"points_to_evaluate: {name_of(steps)}={point!r} is not in the search space",
            hint=f"use a value of {_shown(node)}",
        )
    if isinstance(node, Drawn):
        return Plain(node.domain.cast(point))
    return Plain(point)


def searched_values(node: Node, config: Any, steps: Steps = ()) -> dict[str, Any]:
    """Return the searched values of a config by path, `a/b`."""
    if isinstance(node, Plain):
        if isinstance(node.value, dict) and isinstance(config, Mapping):
            constants = {key: Plain(value) for key, value in node.value.items()}
            return _searched_inside(constants, config, config, steps)
        return {} if same(node.value, config) else {name_of(steps): config}
    if isinstance(node, Group) and _is_container(node.kind, config):
        keys = config if node.kind is dict else range(len(config))
        return _searched_inside(dict(node.children), config, keys, steps)
    return _flat(config, steps)


def _searched_inside(
    children: Mapping[Any, Node], config: Any, keys: Iterable[Any], steps: Steps
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key in keys:
        inner = (*steps, key)
        if key in children:
            values |= searched_values(children[key], config[key], inner)
        else:
            values |= _flat(config[key], inner)
    return values


def tag_of(number: int, searched: Mapping[str, Any]) -> str:
    """Return a short text for a trial: its number and the searched values."""
    names = [_last_name(path) for path in searched]
    parts = []
    for path, name in sorted(zip(searched, names, strict=True)):
        shown = name if names.count(name) == 1 else path
        parts.append(f"{_fit(shown)}={_tag_value(searched[path])}")
    return f"{number}_{','.join(parts)}" if parts else str(number)


def _flat(value: Any, steps: Steps) -> dict[str, Any]:
    name = name_of(steps)
    if isinstance(value, Mapping) and value:
        return flattened_config(value, f"{name}/" if name else "")
    return {name: value}


def _last_name(path: str) -> str:
    """Return the last part of a path that is not an index, with the indexes after it."""
    parts = path.split("/")
    start = len(parts) - 1
    while start > 0 and parts[start].isdigit():
        start -= 1
    return "_".join(parts[start:])


def _tag_value(value: Any) -> str:
    if isinstance(value, float):
        # Four decimals would show a learning rate of 0.00001 as 0.
        return f"{value:.4g}" if 0 < abs(value) < 0.001 else f"{value:.4f}"
    return _fit(str(value))[:_TAG_VALUE_LENGTH]


def _fit(text: str) -> str:
    return _UNFIT_FOR_NAMES.sub("_", text).strip("_")


def _has(kind: type, key: Any, value: Any) -> bool:
    if kind is dict:
        return isinstance(value, Mapping) and key in value
    return isinstance(value, list | tuple) and key < len(value)


def _is_container(kind: type, value: Any) -> bool:
    return isinstance(value, Mapping) if kind is dict else isinstance(value, list | tuple)


def _is_part(point: Any, value: Any) -> bool:
    if not isinstance(point, Mapping) or not isinstance(value, dict):
        return False
    return all(key in value and _equal(value[key], point[key]) for key in point)


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, Mark) != isinstance(right, Mark):
        return False
    try:
        return bool(left == right)
    except (TypeError, ValueError):  # arrays do not compare to a single bool
        return False


def _shown(node: Node) -> str:
    match node:
        case Plain(value):
            return repr(value)
        case Drawn(_, domain):
            return repr(domain)
        case Choice(_, options) | GridOf(_, options):
            return ", ".join(_shown(option) for option in options)
        case _:
            return "the same form"

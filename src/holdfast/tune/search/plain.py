"""Configs as data that can be written as JSON and comes back as it was.

Plain data is None, True, False, numbers, texts, and lists, tuples and dicts of them. Tuples and
dicts whose keys are not texts have no form in JSON, so they get one here: a dict with the single
key `$tuple` or `$dict`. Numbers of numpy become Python's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.api.checks import this_is
from holdfast.errors import ConfigError

Step = str | int | tuple[int]  # a key, a place in a list, or (i,): the i-th option


@dataclass(frozen=True, slots=True)
class Mark:
    """Stands for an object in a search space: where it was given, not what it is."""

    steps: tuple[Step, ...]
    kind: str = field(default="object", compare=False)

    def __str__(self) -> str:
        options = [step[0] for step in self.steps if isinstance(step, tuple)]
        return "_".join([self.kind, *map(str, options)])


_LEAVES = frozenset({type(None), bool, int, float, str})
_NAMED = frozenset({str})


def is_plain_leaf(value: object) -> bool:
    """Whether `value` is None, or of a type of which JSON gives back the very same."""
    return type(value) in _LEAVES


def own(value: Any) -> Any:
    """Return a number or text of numpy as Python's own, everything else as it is."""
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    return value


def same(one: Any, other: Any) -> bool:
    """Whether two pieces of plain data are the same, in type too; NaN is the same as NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one is other or one == other)


def step_of(key: Any) -> Step:
    """Return the step from a dict to what it has under `key`."""
    return key if type(key) in (str, int) else f"{type(key).__name__}:{key!r}"


def name_of(steps: tuple[Any, ...]) -> str:
    """Return a place as text: `a/b`, `a[1]/b` inside the second option of `a`."""
    text = ""
    for step in steps:
        if isinstance(step, tuple):
            text += f"[{step[0]}]"
        else:
            text += f"/{step}" if text else str(step)
    return text


def config_to_data(value: Any, where: str = "config") -> Any:
    """Return a config with marks as data for JSON; what is no data is a ConfigError."""
    kind = type(value)
    if kind in _LEAVES:
        return value
    if kind is dict and _NAMED.issuperset(map(type, value)) and "$" not in "".join(value):
        return {key: config_to_data(below, f"{where}/{key}") for key, below in value.items()}
    value = own(value)
    if is_plain_leaf(value):
        return value
    if isinstance(value, Mark):
        return {"$mark": [_step_to_data(step) for step in value.steps], "kind": value.kind}
    if isinstance(value, tuple) and type(value) is tuple:
        return {"$tuple": _items(value, where)}
    if isinstance(value, list):
        return _items(value, where)
    if isinstance(value, Mapping):
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: config_to_data(below, f"{where}/{key}") for key, below in value.items()}
        pairs = [
            [config_to_data(own(key), f"a key of {where}"), config_to_data(below, f"{where}/{key}")]
            for key, below in value.items()
        ]
        return {"$dict": pairs}
    raise ConfigError(
        f"{where} cannot be kept with the study: {this_is(value)}, which is not plain data",
        hint="give objects in param_space itself, or as options of choice or grid_search; what "
        "sample_from or a searcher makes should be numbers, texts, and lists and dicts of them",
    )


def config_from_data(data: Any) -> Any:
    """Return the config that `config_to_data` was given."""
    if isinstance(data, list):
        return [config_from_data(item) for item in data]
    if not isinstance(data, dict):
        return data
    if "$tuple" in data:
        return tuple(config_from_data(item) for item in data["$tuple"])
    if "$dict" in data:
        return {config_from_data(key): config_from_data(below) for key, below in data["$dict"]}
    if "$mark" in data:
        return Mark(tuple(_step_from_data(step) for step in data["$mark"]), data["kind"])
    return {key: config_from_data(below) for key, below in data.items()}


def flattened_config(value: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Return what is inside dicts by its path, `a/b`; an empty dict is a value."""
    flat: dict[str, Any] = {}
    for key, below in value.items():
        path = f"{prefix}{key}"
        if isinstance(below, Mapping) and below:
            flat.update(flattened_config(below, f"{path}/"))
        else:
            flat[path] = below
    return flat


def nested_config(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config whose values are given by paths."""
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        *above, last = str(path).split("/")
        inside = nested
        for key in above:
            inside = inside.setdefault(key, {})
        inside[last] = value
    return nested


def merged(below: Mapping[Any, Any], above: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return two configs as one; where both have a value, `above` wins."""
    found = dict(below)
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(found.get(key), Mapping):
            found[key] = merged(found[key], value)
        else:
            found[key] = value
    return found


def _items(values: list[Any] | tuple[Any, ...], where: str) -> list[Any]:
    return [config_to_data(item, f"{where}/{place}") for place, item in enumerate(values)]


def _step_to_data(step: Step) -> Any:
    return list(step) if isinstance(step, tuple) else step


def _step_from_data(step: Any) -> Step:
    return (step[0],) if isinstance(step, list) else step

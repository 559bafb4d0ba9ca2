"""Configs that are nested, by their paths and side by side; their form as data is `core`'s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.config_data import Mark, Step, config_from_data, config_to_data
from holdfast.core.plain_data import is_json_leaf, is_plain_leaf, own, same

__all__ = [
    "Mark",
    "Step",
    "config_from_data",
    "config_to_data",
    "flattened_config",
    "is_json_leaf",
    "is_plain_leaf",
    "merged",
    "name_of",
    "nested_config",
    "own",
    "same",
    "step_of",
]


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

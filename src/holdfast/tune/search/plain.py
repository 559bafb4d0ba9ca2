"""Names the places in nested configs, flattens and merges configs."""

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
    """Return the step from a dict to its value under `key`."""
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
    """Return the values inside nested dicts by path, `a/b`; an empty dict is a value."""
    flat: dict[str, Any] = {}
    for key, item in value.items():
        path = f"{prefix}{key}"
        if isinstance(item, Mapping) and item:
            flat.update(flattened_config(item, f"{path}/"))
        else:
            flat[path] = item
    return flat


def nested_config(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested config of values by path."""
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
    both = dict(below)
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(both.get(key), Mapping):
            both[key] = merged(both[key], value)
        else:
            both[key] = value
    return both

"""Configs as data that can be written as JSON and comes back as it was.

Plain data is None, True, False, numbers, texts, paths, and lists, tuples and dicts of them. Tuples,
paths and dicts whose keys are not texts have no form in JSON, so they get one here: a dict with the
key `$tuple`, `$path` or `$dict`. Numbers of numpy become Python's own. In memory a config is always
as its user knows it; only what is written down, and what is read, has this form.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from holdfast.errors import ConfigError

Step = str | int | tuple[int]  # a key, a place in a list, or (i,): the i-th option


class Mark:
    """Stands for an object in a search space: where it was given, not what it is."""

    __slots__ = ("kind", "steps")  # no dataclass: encoders would take it for data

    def __init__(self, steps: tuple[Step, ...], kind: str = "object") -> None:
        self.steps, self.kind = steps, kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mark) and self.steps == other.steps

    def __hash__(self) -> int:
        return hash(self.steps)

    def __repr__(self) -> str:
        return f"Mark({self.steps!r}, {self.kind!r})"

    def __str__(self) -> str:
        options = [step[0] for step in self.steps if isinstance(step, tuple)]
        return "_".join([self.kind, *map(str, options)])


_LEAVES = frozenset({type(None), bool, int, float, str})
_NAMED = frozenset({str})
_PATH = "Path"  # the name of the class that paths have on the machine they are on
_PATHS: dict[str, type[pathlib.PurePath]] = {
    _PATH: type(pathlib.Path()),
    "PurePosixPath": pathlib.PurePosixPath,
    "PureWindowsPath": pathlib.PureWindowsPath,
}
_PATH_NAMES = {kind: name for name, kind in _PATHS.items()}


def is_json_leaf(value: object) -> bool:
    """Whether `value` is None, or of a type of which JSON gives back the very same."""
    return type(value) in _LEAVES


def is_plain_leaf(value: object) -> bool:
    """Whether `value` is plain data with nothing inside: what JSON gives back, or a path.

    A path whose name is no text (of bytes that are not UTF-8) is not: no JSON can hold it.
    """
    return type(value) in _LEAVES or (type(value) in _PATH_NAMES and _is_text(str(value)))


def own(value: Any) -> Any:
    """Return a number or text of numpy as Python's own, everything else as it is."""
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    return value


def config_to_data(value: Any, where: str = "config") -> Any:
    """Return a config with marks as data for JSON; what is no data is a ConfigError."""
    kind = type(value)
    if kind in _LEAVES:
        return value
    if kind is dict and _NAMED.issuperset(map(type, value)) and "$" not in "".join(value):
        return {key: config_to_data(below, f"{where}/{key}") for key, below in value.items()}
    value = own(value)
    if is_json_leaf(value):
        return value
    if kind in _PATH_NAMES and is_plain_leaf(value):
        return {"$path": str(value), "kind": _PATH_NAMES[kind]}
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
        f"{where} cannot be kept with the study: this is {_kind(value)}, which is not plain data",
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
    if "$path" in data:
        return _PATHS.get(data.get("kind", ""), pathlib.Path)(data["$path"])
    if "$mark" in data:
        return Mark(tuple(_step_from_data(step) for step in data["$mark"]), data["kind"])
    return {key: config_from_data(below) for key, below in data.items()}


def as_kept(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config as it will be once it was written down and read; a copy.

    One that has no form as data stays as it is: whoever writes it down says so.
    """
    try:
        kept: dict[str, Any] = config_from_data(config_to_data(config))
    except ConfigError:
        return config
    return kept


def _items(values: list[Any] | tuple[Any, ...], where: str) -> list[Any]:
    return [config_to_data(item, f"{where}/{place}") for place, item in enumerate(values)]


def _step_to_data(step: Step) -> Any:
    return list(step) if isinstance(step, tuple) else step


def _step_from_data(step: Any) -> Step:
    return (step[0],) if isinstance(step, list) else step


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__qualname__} itself"
    kind = type(value)
    if kind in _PATH_NAMES:
        return "a path whose name is not text"
    known = kind.__module__ == "builtins"
    return kind.__qualname__ if known else f"{kind.__module__}.{kind.__qualname__}"

"""Configs of trials as data for JSON, with marks in place of the objects of a search space.

Besides plain data a config may hold tuples, paths, dicts whose keys are not strings, and marks;
numbers of numpy become Python's own. Only stored configs have this form: in memory a config is as
the user gave it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.plain_data import (
    PATH_FORMS,
    PATH_READER,
    KeyStep,
    NotPlain,
    Reader,
    Steps,
    Writer,
    dict_or_pairs,
    items,
    marked_items,
    own,
    read_items,
    read_pairs,
    refused,
)
from holdfast.errors import ConfigError

Step = str | int | tuple[int]  # a key, a place in a list, or (i,): the i-th option


class Mark:
    """Stands for an object in a search space: holds where it was given, not the object."""

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


def _mark(_writer: Writer, mark: Mark, _steps: Steps) -> dict[str, Any]:
    steps = [list(step) if isinstance(step, tuple) else step for step in mark.steps]
    return {"$mark": steps, "kind": mark.kind}


def _read_mark(_reader: Reader, data: dict[str, Any]) -> Mark:
    steps = ((step[0],) if isinstance(step, list) else step for step in data["$mark"])
    return Mark(tuple(steps), data["kind"])


def _own_or_refused(writer: Writer, value: Any, steps: Steps) -> Any:
    python_value = own(value)
    return refused(writer, value, steps) if python_value is value else writer(python_value, steps)


CONFIG_FORMS = {
    **PATH_FORMS,
    Mark: _mark,
    dict: dict_or_pairs("$dict"),
    list: items,
    tuple: marked_items("$tuple"),
}
CONFIG_READERS = {
    **PATH_READER,
    **read_items("$tuple", tuple),
    **read_pairs("$dict"),
    "$mark": _read_mark,
}
write_config = Writer(
    forms=CONFIG_FORMS,
    families=[(list, items), (Mapping, dict_or_pairs("$dict"))],
    otherwise=_own_or_refused,
)
_read_config = Reader(CONFIG_READERS)


def config_to_data(value: Any, where: str = "config") -> Any:
    """Return a config with marks as data for JSON; raise ConfigError for what is not data."""
    try:
        return write_config(value)
    except NotPlain as problem:
        raise config_refused(problem, where) from None


def config_from_data(data: Any) -> Any:
    """Return the config that `config_to_data` was given."""
    return _read_config(data)


def config_refused(problem: NotPlain, where: str) -> ConfigError:
    """Return the error that names the value in a config that cannot be stored."""
    for step in problem.steps:
        where = f"a key of {where}" if step is KeyStep else f"{where}/{step}"
    return ConfigError(
        f"{where} cannot be kept with the study: it is {problem.reason}, which is not plain data",
        hint="give objects in param_space itself, or as options of choice or grid_search; "
        "sample_from and searchers should return numbers, strings, and lists and dicts of them",
    )


def as_kept(config: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a config as it will be after it was stored and read again.

    A config that cannot be stored is returned as it is: the code that stores it raises.
    """
    try:
        stored: dict[str, Any] = _read_config(write_config(config))
    except NotPlain:
        return config
    return stored

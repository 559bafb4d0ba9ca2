"""Replaces objects in search spaces and configs, which cannot be stored, by marks.

Models, datasets, references and functions are not written to disk. A stored config has a `Mark`
instead: the path, and the option of `choice` or `grid_search`. When a study resumes in another
process, its `param_space` is passed again, and a mark stands for the object at that place now.
Plain data stays as it was drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast.api.picklable import pickling_problem
from holdfast.core.config_data import Mark, Step, config_from_data, config_to_data
from holdfast.core.names import shown
from holdfast.core.plain_data import is_plain_leaf, own
from holdfast.errors import ConfigError
from holdfast.objects.refs import ObjectRef, problem_with
from holdfast.tune.search.domains import Categorical, Domain, Function
from holdfast.tune.search.plain import name_of, step_of
from holdfast.tune.search.variant_generator import Expression, is_expression

__all__ = [
    "MissingFunction",
    "Objects",
    "config_from_data",
    "config_to_data",
    "keys_of",
    "must_have_same_keys",
]

_NOTHING: Any = object()


class Objects:
    """The objects of a search space, by their places."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.functions: dict[tuple[Step, ...], Function] = {}
        self._values: dict[tuple[Step, ...], Any] = {}

    @classmethod
    def of(cls, space: Any) -> tuple[Any, Objects]:
        """Return a search space with marks instead of objects, and the objects."""
        objects = cls()
        return objects._taken(space, ()), objects

    def joined(self, other: Objects) -> Objects:
        """Return the objects of two spaces; those of `other` win."""
        both = Objects()
        both.marks = [*self.marks, *other.marks]
        both.functions = self.functions | other.functions
        both._values = self._values | other._values
        return both

    def resolve(self, config: Any) -> Any:
        """Return a config with objects instead of marks.

        Raises:
            ConfigError: An object is missing; see `missing`.
        """
        if lost := self.missing(config):
            raise ConfigError(
                f"the config has objects that are gone with the process that made them: "
                f"{', '.join(lost)}",
                hint="pass param_space again, with new objects in the same places",
            )
        return self._resolved(config)

    def missing(self, config: Any) -> list[str]:
        """Return the paths of objects in a config, or in a space, that are missing."""
        return list(self._missing(config, ()))

    def must_travel(self) -> None:
        """Raise a ConfigError if an object cannot be sent to the processes of trials."""
        for mark in self.marks:
            value = self._values.get(mark.steps)
            if isinstance(value, ObjectRef):
                continue
            if reason := pickling_problem(value):
                raise ConfigError(
                    f"param_space has {shown(value)} at {name_of(mark.steps)}, which cannot be"
                    f" sent to the processes of trials: {reason}",
                    hint="create it in the trainable, which runs there",
                )

    def marked(self, config: Any, steps: tuple[Any, ...] = ()) -> Any:
        """Return a user's config with marks in place of objects, which the space must have."""
        if isinstance(config, Mapping):
            return {key: self.marked(item, (*steps, key)) for key, item in config.items()}
        if type(config) in (list, tuple):
            items = (self.marked(item, (*steps, at)) for at, item in enumerate(config))
            return type(config)(items)
        value = own(config)
        if is_plain_leaf(value) or isinstance(value, Mark):
            return value
        for mark in self.marks:
            if self._values.get(mark.steps, _NOTHING) is value and _is_at(mark, steps):
                return mark
        raise ConfigError(
            f"{name_of(steps)}={config!r} is not one of the objects of the search space",
            hint="pass the very object that is an option there",
        )

    def _taken(self, value: Any, steps: tuple[Step, ...]) -> Any:
        if isinstance(value, Mark):  # of a stored space, without its objects
            self.marks.append(value)
            return value
        self._values[steps] = value
        if isinstance(value, Categorical):
            marked = Categorical(self._options(value.categories, steps))
            marked.sampler = value.sampler
            return marked
        if isinstance(value, Function):
            self.functions[steps] = value
            return value
        if isinstance(value, Domain):
            return value
        if isinstance(value, dict):
            if is_expression(value):
                self.functions[steps] = Expression(value["eval"])
                return value
            if value.keys() == {"grid_search"} and isinstance(value["grid_search"], list | tuple):
                return {"grid_search": self._options(value["grid_search"], steps)}
            return {key: self._taken(v, (*steps, step_of(key))) for key, v in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._taken(v, (*steps, at)) for at, v in enumerate(value))
        plain = own(value)
        if is_plain_leaf(plain):
            return plain
        mark = Mark(steps, type(value).__name__)
        self.marks.append(mark)
        return mark

    def _options(self, options: Iterable[Any], steps: tuple[Step, ...]) -> list[Any]:
        return [self._taken(option, (*steps, (place,))) for place, option in enumerate(options)]

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Mark):
            return self._values[value.steps]
        if isinstance(value, dict):
            return {key: self._resolved(item) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._resolved(item) for item in value)
        return value

    def _missing(self, value: Any, steps: tuple[Any, ...]) -> Iterator[str]:
        inside: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, Mark):
            if not self._has(value):
                yield name_of(steps) or name_of(value.steps)
        elif isinstance(value, MissingFunction):
            yield name_of(steps)
        elif isinstance(value, Categorical):
            inside = (((place,), option) for place, option in enumerate(value.categories))
        elif isinstance(value, dict):
            inside = value.items()
            if value.keys() == {"grid_search"} and isinstance(value["grid_search"], list):
                inside = (((place,), option) for place, option in enumerate(value["grid_search"]))
        elif isinstance(value, list | tuple):
            inside = enumerate(value)
        for step, item in inside:
            yield from self._missing(item, (*steps, step))

    def _has(self, mark: Mark) -> bool:
        value = self._values.get(mark.steps, _NOTHING)
        if isinstance(value, ObjectRef) and problem_with(value) is not None:
            return False  # the reference is here, but its object is gone
        return value is not _NOTHING and not _is_searched(value)


class MissingFunction(Function):
    """A function of a stored search space that was not passed again."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(self.fail)

    def fail(self) -> Any:
        """Raise a ConfigError."""
        raise ConfigError(
            f"the function for {self.name!r} is gone with the process that made it",
            hint="pass param_space again",
        )


def keys_of(space: Mapping[Any, Any], prefix: str = "") -> list[str]:
    """Return the sorted paths of all values of a search space; a grid or expression is a value."""
    paths: list[str] = []
    for key, value in space.items():
        path = f"{prefix}{key}"
        is_value = not isinstance(value, dict) or not value or value.keys() <= _OPERATORS
        paths.extend([path] if is_value else keys_of(value, f"{path}/"))
    return sorted(paths)


def must_have_same_keys(stored_keys: Iterable[str], space: Mapping[Any, Any]) -> None:
    """Raise a ConfigError unless `space` has the keys that a study was started with."""
    stored, given = sorted(stored_keys), keys_of(space)
    if stored == given:
        return
    lacking = [key for key in stored if key not in given]
    added = [key for key in given if key not in stored]
    raise ConfigError(
        "param_space is not that of the stored study:"
        f"\n  - the study has {stored}\n  - given are {given}"
        + (f"\n  - missing: {lacking}" if lacking else "")
        + (f"\n  - not in the study: {added}" if added else ""),
        hint="pass the same keys, or restore the study and call tuner.fork(param_space=…)",
    )


_OPERATORS = {"grid_search", "eval"}


def _is_at(mark: Mark, steps: tuple[Any, ...]) -> bool:
    """Return whether a mark belongs to a place; the options at a place are not distinguished."""
    plain = tuple(step for step in mark.steps if not isinstance(step, tuple))
    return plain == tuple(map(step_of, steps))


def _is_searched(value: Any) -> bool:
    """Return whether a value contains something to search."""
    if isinstance(value, Domain):
        return True
    if isinstance(value, dict):
        return value.keys() == {"grid_search"} or any(map(_is_searched, value.values()))
    return type(value) in (list, tuple) and any(map(_is_searched, value))

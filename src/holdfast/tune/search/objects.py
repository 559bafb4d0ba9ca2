"""Objects in a search space: what cannot be written down is known by where it was given.

Models, datasets, references and functions are kept out of configs that rest on a disk. In their
place stands a `Mark`: the path, and which option of `choice` or `grid_search` it was. When a study
goes on in another process, its `param_space` is given again, and a mark means whatever is at that
place now; what was drawn as plain data stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """The objects of a search space, by where they were given."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.functions: dict[tuple[Step, ...], Function] = {}
        self._values: dict[tuple[Step, ...], Any] = {}

    @classmethod
    def of(cls, space: Any) -> tuple[Any, Objects]:
        """Return a search space with marks instead of objects, and the objects."""
        found = cls()
        return found._taken(space, ()), found

    def joined(self, other: Objects) -> Objects:
        """Return the objects of two spaces; where both have one, it is that of `other`."""
        found = Objects()
        found.marks = [*self.marks, *other.marks]
        found.functions = self.functions | other.functions
        found._values = self._values | other._values
        return found

    def resolve(self, config: Any) -> Any:
        """Return a config with objects instead of marks.

        Raises:
            ConfigError: An object is not there; see `missing`.
        """
        if lost := self.missing(config):
            raise ConfigError(
                f"the config has objects that are gone with the process that made them: "
                f"{', '.join(lost)}",
                hint="give param_space again, with new objects in the same places",
            )
        return self._resolved(config)

    def missing(self, config: Any) -> list[str]:
        """Return the paths in a config, or in a space, of what cannot be resolved."""
        found: list[str] = []
        self._look(config, (), found)
        return found

    def must_travel(self) -> None:
        """Raise, naming its place, if there is an object that no process of a trial can get."""
        for mark in self.marks:
            value = self._values.get(mark.steps)
            if isinstance(value, ObjectRef):
                continue
            if reason := pickling_problem(value):
                raise ConfigError(
                    f"param_space has {shown(value)} at {name_of(mark.steps)}, which cannot be"
                    f" sent to the processes of trials: {reason}",
                    hint="make it in the trainable, which runs there",
                )

    def marked(self, config: Any, steps: tuple[Any, ...] = ()) -> Any:
        """Return a config given by the user with marks for those objects that the space has."""
        if isinstance(config, Mapping):
            return {key: self.marked(below, (*steps, key)) for key, below in config.items()}
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
            hint="the very object that is an option there",
        )

    def _taken(self, value: Any, steps: tuple[Step, ...]) -> Any:
        if isinstance(value, Mark):  # of a stored space, whose objects are not here
            self.marks.append(value)
            return value
        self._values[steps] = value
        if isinstance(value, Categorical):
            made = Categorical(self._options(value.categories, steps))
            made.sampler = value.sampler
            return made
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
            return {key: self._resolved(below) for key, below in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._resolved(item) for item in value)
        return value

    def _look(self, value: Any, steps: tuple[Any, ...], found: list[str]) -> None:
        if isinstance(value, Mark):
            if not self._has(value):
                found.append(name_of(steps) or name_of(value.steps))
        elif isinstance(value, Categorical):
            for place, option in enumerate(value.categories):
                self._look(option, (*steps, (place,)), found)
        elif isinstance(value, Function):
            if isinstance(value, MissingFunction):
                found.append(name_of(steps))
        elif isinstance(value, dict):
            if value.keys() == {"grid_search"} and isinstance(value["grid_search"], list):
                for place, option in enumerate(value["grid_search"]):
                    self._look(option, (*steps, (place,)), found)
                return
            for key, below in value.items():
                self._look(below, (*steps, key), found)
        elif isinstance(value, list | tuple):
            for place, item in enumerate(value):
                self._look(item, (*steps, place), found)

    def _has(self, mark: Mark) -> bool:
        value = self._values.get(mark.steps, _NOTHING)
        if isinstance(value, ObjectRef) and problem_with(value) is not None:
            return False  # it was given, but what it refers to is gone
        return value is not _NOTHING and not _is_searched(value)


class MissingFunction(Function):
    """A function of a stored search space that was not given again."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(self.fail)

    def fail(self) -> Any:
        """Say that the function is not there."""
        raise ConfigError(
            f"the function that gives {self.name!r} is gone with the process that made it",
            hint="give param_space again",
        )


def keys_of(space: Mapping[Any, Any], prefix: str = "") -> list[str]:
    """Return the paths of all values of a search space, in order; what is searched is a value."""
    found: list[str] = []
    for key, value in space.items():
        path = f"{prefix}{key}"
        is_value = not isinstance(value, dict) or not value or value.keys() <= _OPERATORS
        found.extend([path] if is_value else keys_of(value, f"{path}/"))
    return sorted(found)


def must_have_same_keys(stored_keys: Iterable[str], space: Mapping[Any, Any]) -> None:
    """Raise a ConfigError unless `space` has the very keys that a study was started with."""
    stored, given = sorted(stored_keys), keys_of(space)
    if stored == given:
        return
    lacking = [key for key in stored if key not in given]
    more = [key for key in given if key not in stored]
    raise ConfigError(
        "param_space is not that of the stored study:"
        f"\n  - the study has {stored}\n  - given are {given}"
        + (f"\n  - missing: {lacking}" if lacking else "")
        + (f"\n  - not in the study: {more}" if more else ""),
        hint="the same keys, to go on; tuner.fork(param_space=…) of a restored one, for others",
    )


_OPERATORS = {"grid_search", "eval"}


def _is_at(mark: Mark, steps: tuple[Any, ...]) -> bool:
    """Whether a mark was given at a place; inside options, places are not told apart."""
    plain = tuple(step for step in mark.steps if not isinstance(step, tuple))
    return plain == tuple(map(step_of, steps))


def _is_searched(value: Any) -> bool:
    """Whether there is something to draw in what is at a mark's place now."""
    if isinstance(value, Domain):
        return True
    if isinstance(value, dict):
        return value.keys() == {"grid_search"} or any(map(_is_searched, value.values()))
    return type(value) in (list, tuple) and any(map(_is_searched, value))

"""Calls the functions inside a config that is being built, each once.

A function sees the config so far. If it reads the value of another function, that one is called
first. If the two need each other, the error names the circle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.core.plain_data import own
from holdfast.errors import ConfigError
from holdfast.tune.search.seeding import seeded_globals
from holdfast.tune.search.variant_generator import (
    Call,
    Node,
    Picker,
    RecursiveDependencyError,
    Row,
    build,
    tree_of,
)

DEPTH_MAX = 20  # functions that return functions that return functions


def config_of(tree: Node, index: int, picker: Picker) -> Any:
    """Return a config of a tree, with all functions called."""
    return Calls(build(tree, index, picker), picker).finish()


class Calls:
    """A config in which some values are functions that are still to be called."""

    def __init__(self, draft: Any, picker: Picker) -> None:
        self._root = {"": draft}
        self._picker = picker
        self._waiting: list[str] = []

    def finish(self) -> Any:
        """Return the config with every function called."""
        return self._finished(self._root, "")

    def read(self, container: Any, key: Any) -> Any:
        """Return one value of the config, for a function that reads it."""
        value = self._settled(container, key)
        if isinstance(value, dict):
            return SpecView(value, self)
        return self._finished(container, key) if isinstance(value, list) else value

    def finished(self, value: Any) -> Any:
        """Return a value with every function in it called."""
        return self._finished({"": value}, "")

    def _finished(self, container: Any, key: Any) -> Any:
        value = self._settled(container, key)
        if isinstance(value, dict):
            return {inner: self._finished(value, inner) for inner in value}
        if isinstance(value, list):
            items = [self._finished(value, place) for place in range(len(value))]
            return tuple(items) if isinstance(value, Row) else items
        return value

    def _settled(self, container: Any, key: Any) -> Any:
        for _ in range(DEPTH_MAX):
            call = container[key]
            if not isinstance(call, Call):
                return call
            container[key] = self._called(call)
        call = container[key]
        if not isinstance(call, Call):
            return call
        raise RecursiveDependencyError(
            f"{call.name}: after {DEPTH_MAX} calls the result is still a function, not a value"
        )

    def _called(self, call: Call) -> Any:
        if call.name in self._waiting:
            circle = " needs ".join([*self._waiting[self._waiting.index(call.name) :], call.name])
            raise RecursiveDependencyError(
                f"functions of the search space need each other's values: {circle}",
                hint="draw one of them without the others",
            )
        self._waiting.append(call.name)
        try:
            with seeded_globals(self._picker.seed(call.name)):
                value = call.function.call(SpecView(self._root[""], self))
        except RecursiveDependencyError:
            raise
        except Exception as error:
            error.add_note(f"raised by the function for {call.name!r} in the search space")
            raise
        finally:
            self._waiting.pop()
        node = tree_of(_own(value), (call.name,))
        if node.size > 1:
            raise ConfigError(
                f"{call.name}: a function returned a grid_search, but a trial gets one value",
                hint="use choice instead of grid_search",
            )
        return build(node, 0, self._picker)


class SpecView(Mapping[str, Any]):
    """The config so far, as a function sees it: by `config["a"]`, or by `spec.config.a`."""

    __slots__ = ("_calls", "_values")

    def __init__(self, values: dict[str, Any], calls: Calls) -> None:
        self._values = values
        self._calls = calls

    def __getitem__(self, key: str) -> Any:
        if key in self._values:
            return self._calls.read(self._values, key)
        if key == "config":  # older functions expect the whole specification
            return self
        raise KeyError(key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            names = sorted(map(str, self._values))
            raise AttributeError(f"no {name!r} in the config; it has {names}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"SpecView({list(self._values)})"

    def to_dict(self) -> dict[str, Any]:
        """Return a copy as plain dicts."""
        return self._calls.finished(self._values)  # type: ignore[no-any-return]


def _own(value: Any) -> Any:
    if isinstance(value, SpecView):
        return value.to_dict()
    if isinstance(value, dict):
        return {key: _own(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_own(item) for item in value)
    return own(value)

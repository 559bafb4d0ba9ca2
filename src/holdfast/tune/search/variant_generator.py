"""Turns a search space into a tree, and builds configs from it.

A tree knows how many combinations its grids have, and finds the i-th directly. A `Picker` chooses
the values, so random search and all searchers build their configs here. Functions are called last,
so that the values they read exist.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.api.checks import this_is
from holdfast.data.libraries import library
from holdfast.errors import ConfigError
from holdfast.tune.errors import InvalidStudy, TuneError
from holdfast.tune.search.domains import Categorical, Domain, Function
from holdfast.tune.search.plain import name_of

Steps = tuple[Any, ...]


@dataclass(frozen=True)
class Plain:
    """A value without anything to search in it."""

    value: Any
    size: int = 1


@dataclass(frozen=True)
class Group:
    """A dict, list or tuple with something to search in it."""

    kind: type
    children: tuple[tuple[Any, Node], ...]
    size: int


@dataclass(frozen=True)
class Drawn:
    """A number to draw."""

    name: str
    domain: Domain
    size: int = 1


@dataclass(frozen=True)
class Call:
    """A value that a user's function returns."""

    name: str
    function: Function
    size: int = 1


@dataclass(frozen=True)
class Options:
    """Several options."""

    name: str
    options: tuple[Node, ...]
    size: int = 1


class Choice(Options):
    """Options of which one is drawn."""


class GridOf(Options):
    """Options that are all tried."""


Node = Plain | Group | Drawn | Choice | Call | GridOf


class Picker(Protocol):
    """Chooses values; it is asked by name, in any order."""

    def value(self, name: str, domain: Domain) -> Any:
        """Return a value of `domain`."""
        ...

    def option(self, name: str, count: int) -> int:
        """Return the index of one of `count` options."""
        ...

    def seed(self, name: str) -> int:
        """Return the seed for a user's function."""
        ...


def tree_of(space: Any, steps: Steps = ()) -> Node:
    """Return a search space as a tree."""
    name = name_of(steps)
    if isinstance(space, Categorical):
        if space.is_grid():
            return _grid(space.categories, steps)
        options = _options(space.categories, steps)
        for option in options:
            if option.size > 1:
                raise ConfigError(
                    f"{name}: a grid_search inside an option of choice, which may not be drawn",
                    hint="put the choice inside the grid_search, or use choice for both",
                )
        return Choice(name, options)
    if isinstance(space, Function):
        return Call(name, space)
    if isinstance(space, Domain):
        return Drawn(name, space)
    if isinstance(space, dict):
        if space.keys() == {"grid_search"}:
            return _grid(space["grid_search"], steps)
        if is_expression(space):
            return Call(name, Expression(space["eval"]))
        return _group(space, dict, list(space.items()), steps)
    if type(space) in (list, tuple):
        return _group(space, type(space), list(enumerate(space)), steps)
    return Plain(space)


def is_expression(space: dict[Any, Any]) -> bool:
    """Return whether a dict is an expression as written in JSON or YAML: `{"eval": "…"}`."""
    return space.keys() == {"eval"} and isinstance(space["eval"], str)


def build(node: Node, index: int, picker: Picker) -> Any:
    """Return the value of a tree: combination `index` of its grids, everything else as picked.

    A function stays a `Call`; see `holdfast.tune.search.functions`.
    """
    match node:
        case Plain(value):
            return copy.deepcopy(value) if isinstance(value, dict | list | tuple) else value
        case Drawn(name, domain):
            return picker.value(name, domain)
        case Choice(name, options):
            return build(options[picker.option(name, len(options))], 0, picker)
        case Call():
            return node
        case GridOf(_, options):
            for option in options:
                if index < option.size:
                    return build(option, index, picker)
                index -= option.size
            raise IndexError(index)
        case Group(kind, children):
            places: dict[Any, int] = {}
            for key, child in sorted(children, key=lambda pair: _sort_key(pair[0])):
                index, places[key] = divmod(index, child.size)
            built = [(key, build(child, places[key], picker)) for key, child in children]
            return _container(kind, built)


class Row(list[Any]):
    """A tuple in which functions are still to be called."""


def has_search(node: Node) -> bool:
    """Return whether there is anything to search."""
    return not isinstance(node, Plain)


def grids(node: Node) -> Iterator[str]:
    """Yield the names of all grids."""
    if isinstance(node, GridOf):
        yield node.name
    for child in _children(node):
        yield from grids(child)


def constants(node: Node) -> Any:
    """Return the part of the config that is not searched; a list counts as a whole."""
    if isinstance(node, Plain):
        return copy.deepcopy(node.value)
    if not isinstance(node, Group) or node.kind is not dict:
        return {}
    return {
        key: constants(child)
        for key, child in node.children
        if isinstance(child, Plain) or (isinstance(child, Group) and child.kind is dict)
    }


class RecursiveDependencyError(TuneError):
    """Functions of a search space need each other's values."""


class Expression(Function):
    """A Python expression over `spec`, from a config written as JSON or YAML."""

    may_be_recorded = False  # it is code

    def __init__(self, expression: str) -> None:
        self.expression = expression
        super().__init__(self.evaluate)

    def bounds(self) -> tuple[Any, ...]:
        return (self.expression,)

    def evaluate(self, spec: Any) -> Any:
        """Return the value of the expression."""
        names = {"random": random, "math": math, "spec": spec, "config": spec}
        if "np" in self.expression or "numpy" in self.expression:
            names["np"] = names["numpy"] = library("numpy")
        # A config is trusted as much as the training code that it is passed to.
        return eval(self.expression, names)  # noqa: S307

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.expression == other.expression

    __hash__ = None  # type: ignore[assignment]

    @property
    def domain_str(self) -> str:
        return f"({self.expression!r})"


def _group(space: Any, kind: type, items: list[tuple[Any, Any]], steps: Steps) -> Node:
    children = tuple((key, tree_of(value, (*steps, key))) for key, value in items)
    if not any(has_search(child) for _, child in children):
        return Plain(space)
    return Group(kind, children, math.prod(child.size for _, child in children))


def _grid(values: Any, steps: Steps) -> Node:
    if not isinstance(values, list | tuple):
        raise InvalidStudy(
            f"{name_of(steps)}: grid_search={values!r} is not a list, {this_is(values)}",
            hint=f"{{'grid_search': [{values!r}]}}",
        )
    if not values:
        raise InvalidStudy(f"{name_of(steps)}: grid_search=[] has no value to try")
    options = _options(values, steps)
    return GridOf(name_of(steps), options, sum(option.size for option in options))


def _options(values: Any, steps: Steps) -> tuple[Node, ...]:
    return tuple(tree_of(value, (*steps, (place,))) for place, value in enumerate(values))


def _container(kind: type, items: list[tuple[Any, Any]]) -> Any:
    if kind is dict:
        return dict(items)
    values = [value for _, value in items]
    return Row(values) if kind is tuple else values


def _children(node: Node) -> Iterator[Node]:
    match node:
        case Group(_, children):
            yield from (child for _, child in children)
        case Options(_, options):
            yield from options
        case _:
            return


def _sort_key(key: Any) -> tuple[bool, Any]:
    """Order places in lists by number, and everything else as text."""
    return (True, key) if isinstance(key, int) else (False, str(key))

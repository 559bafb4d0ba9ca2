"""What a searcher remembers, as data.

Beyond what configs may hold, a searcher may remember sets, deques, search domains and generators
of random numbers. Functions, classes, modules and loggers are no memory: they are what the
constructor gave, and it is called again before a state is set.
"""

from __future__ import annotations

import base64
import logging
import random
import tempfile
import types
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.api.checks import this_is
from holdfast.data.libraries import is_instance, library
from holdfast.errors import ConfigError
from holdfast.tune.search.domains import Domain
from holdfast.tune.search.plain import Mark, config_from_data, config_to_data, is_plain_leaf, own

if TYPE_CHECKING:
    from holdfast.tune.search.searcher import Searcher

_NOT_MEMORY = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    type,
    logging.Logger,
    Domain,
)


class NotData(Exception):
    """A value has no form as data; the message says where it is."""


def to_data(value: Any, where: str) -> Any:
    """Return what a searcher remembers as data for JSON, or raise NotData."""
    value = own(value)
    if is_plain_leaf(value) or isinstance(value, Mark):
        return config_to_data(value)
    if isinstance(value, dict):
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: to_data(below, f"{where}[{key!r}]") for key, below in value.items()}
        pairs = [[to_data(key, where), to_data(v, f"{where}[{key!r}]")] for key, v in value.items()]
        return {"$dict": pairs}
    if type(value) in (list, tuple, set, frozenset, deque):
        items = [to_data(item, where) for item in _in_order(value)]
        return items if isinstance(value, list) else {f"${type(value).__name__}": items}
    if isinstance(value, random.Random):
        return {"$random": to_data(value.getstate(), where)}
    if is_instance(value, "numpy.random", "RandomState"):
        kind, keys, *rest = value.get_state()
        return {"$numpy_random_state": [kind, keys.tolist(), *rest]}
    if is_instance(value, "numpy.random", "Generator"):
        return {"$numpy_generator": to_data(_listed(value.bit_generator.state), where)}
    raise NotData(f"{where}: {this_is(value)}")


def from_data(data: Any) -> Any:
    """Return what `to_data` was given."""
    if isinstance(data, list):
        return [from_data(item) for item in data]
    if not isinstance(data, dict):
        return data
    for name, kind in _CONTAINERS.items():
        if name in data:
            return kind(from_data(item) for item in data[name])
    if "$dict" in data:
        return {from_data(key): from_data(below) for key, below in data["$dict"]}
    if "$mark" in data:
        return config_from_data(data)
    if "$random" in data:
        generator = random.Random()
        generator.setstate(from_data(data["$random"]))
        return generator
    if "$numpy_random_state" in data:
        older = library("numpy.random").RandomState()
        older.set_state(tuple(data["$numpy_random_state"]))
        return older
    if "$numpy_generator" in data:
        return _numpy_generator(from_data(data["$numpy_generator"]))
    return {key: from_data(below) for key, below in data.items()}


def memory_of(searcher: Searcher) -> dict[str, Any]:
    """Return all attributes of a searcher that are memory, as data.

    What has no form as data is left to the searcher's own `save`, if it has one.

    Raises:
        ConfigError: Something cannot be kept; it names what, and the methods to write.
    """
    found: dict[str, Any] = {}
    problems: list[str] = []
    inner: dict[str, Any] = {}
    for name, value in vars(searcher).items():
        if isinstance(value, _NOT_MEMORY) or _is_space(value):
            continue
        if hasattr(value, "suggest") and hasattr(value, "get_state"):  # a searcher inside
            inner[name] = value.get_state()
            continue
        try:
            found[name] = to_data(value, f"self.{name}")
        except NotData as problem:
            problems.append(str(problem))
    if not problems:
        return {"vars": found, "searchers": inner}
    if searcher.saves_itself():
        return {"file": _file_of(searcher)}
    listed = "".join(f"\n  - {problem}" for problem in problems)
    kind = type(searcher).__name__
    raise ConfigError(
        f"{kind} cannot be kept with the study, so that a crash would make it forget:{listed}",
        hint=f"write {kind}.get_state() -> dict and set_state(state), with plain data, or "
        "save(path) and restore(path)",
    )


def remember(searcher: Searcher, state: dict[str, Any]) -> None:
    """Give a searcher the memory that `memory_of` returned."""
    if "file" in state:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "searcher"
            path.write_bytes(base64.b64decode(state["file"]))
            searcher.restore(str(path))
        return
    for name, data in state["vars"].items():
        setattr(searcher, name, from_data(data))
    for name, inner in state["searchers"].items():
        getattr(searcher, name).set_state(inner)


def _file_of(searcher: Searcher) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "searcher"
        searcher.save(str(path))
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{type(searcher).__name__}.save(path) left no file at path: {error.strerror}"
            ) from error
    return base64.b64encode(content).decode()


def _is_space(value: Any) -> bool:
    """Whether there is a domain inside: a search space, which the constructor is given again."""
    if isinstance(value, dict):
        return any(map(_is_space, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_is_space, value))
    return isinstance(value, Domain)


def _in_order(values: Any) -> list[Any]:
    """Return the items; those of a set in an order that is the same in every process."""
    return sorted(values, key=repr) if isinstance(values, set | frozenset) else list(values)


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(below) for key, below in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def _numpy_generator(state: dict[str, Any]) -> Any:
    numpy_random = library("numpy.random")
    kind = state["bit_generator"]
    if kind not in _NUMPY_GENERATORS:
        raise ValueError(f"{kind!r} is no generator of random numbers")
    bits = getattr(numpy_random, kind)()
    bits.state = state
    return numpy_random.Generator(bits)


_NUMPY_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_CONTAINERS: dict[str, Any] = {
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$deque": deque,
}

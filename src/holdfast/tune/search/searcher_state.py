"""What a searcher remembers, as data.

Beyond what configs may hold, a searcher may remember sets, deques, counters, dicts that are ordered
or have a usual default, numbers and arrays of numpy, search domains and generators of random
numbers. All of these come back as what they were; a class derived from one of them may hold more,
and is refused. Functions, classes, modules and loggers are no memory: they are what the constructor
gave, and it is called again before a state is set.
"""

from __future__ import annotations

import base64
import logging
import random
import tempfile
import types
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.api.checks import this_is
from holdfast.data.libraries import is_instance, library
from holdfast.errors import ConfigError
from holdfast.tune.search.domains import Domain
from holdfast.tune.search.plain import Mark, config_from_data, config_to_data, is_plain_leaf

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
    kind = type(value)
    if is_plain_leaf(value) or kind is Mark:
        return config_to_data(value)
    if kind is dict and all(type(key) is str and not key.startswith("$") for key in value):
        return {key: to_data(below, f"{where}[{key!r}]") for key, below in value.items()}
    if kind in _DICTS:
        pairs = [[to_data(key, where), to_data(v, f"{where}[{key!r}]")] for key, v in value.items()]
        if kind is not defaultdict:
            return {f"${_DICTS[kind]}": pairs}
        return {"$defaultdict": [_factory_name(value, where), pairs]}
    if kind in (list, tuple, set, frozenset, deque):
        items = [to_data(item, where) for item in _in_order(value)]
        if kind is deque and value.maxlen is not None:
            return {"$bounded_deque": [value.maxlen, items]}
        return items if kind is list else {f"${kind.__name__}": items}
    if kind is random.Random:
        return {"$random": to_data(value.getstate(), where)}
    if is_instance(value, "numpy", "generic") or is_instance(value, "numpy", "ndarray"):
        return _numpy_to_data(value, where)
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
    for kind, name in _DICTS.items():
        if kind is not defaultdict and f"${name}" in data:
            return kind(_pairs(data[f"${name}"]))
    if "$defaultdict" in data:
        factory, pairs = data["$defaultdict"]
        return defaultdict(None if factory is None else _FACTORIES[factory], _pairs(pairs))
    if "$bounded_deque" in data:
        most, items = data["$bounded_deque"]
        return deque(map(from_data, items), most)
    if "$numpy" in data:
        return _numpy_from_data(*data["$numpy"])
    if "$mark" in data or "$path" in data:
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
        if isinstance(value, _NOT_MEMORY):
            continue
        if hasattr(value, "suggest") and hasattr(value, "get_state"):  # a searcher inside
            inner[name] = value.get_state()
            continue
        try:
            if not _is_space(value):
                found[name] = to_data(value, f"self.{name}")
        except NotData as problem:
            problems.append(str(problem))
        except RecursionError:
            problems.append(f"self.{name}: it holds itself, or is nested too deep")
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


def _pairs(data: list[Any]) -> dict[Any, Any]:
    return {from_data(key): from_data(below) for key, below in data}


def _factory_name(value: defaultdict[Any, Any], where: str) -> str | None:
    factory = value.default_factory
    if factory is None:
        return None
    name = getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is not factory:
        known = ", ".join(_FACTORIES)
        raise NotData(f"{where}: a defaultdict whose default is made by none of {known}")
    return name


def _numpy_to_data(value: Any, where: str) -> dict[str, Any]:
    """Return a number or an array of numpy as its type, its shape and its bytes."""
    array = library("numpy").asarray(value, order="C")
    is_known = type(value) in (library("numpy").ndarray, array.dtype.type)
    if not is_known or array.dtype.kind not in "biufcmMSU":
        raise NotData(f"{where}: {this_is(value)} of {array.dtype}")
    shape = list(array.shape) if type(value) is library("numpy").ndarray else None
    return {"$numpy": [array.dtype.str, shape, base64.b64encode(array.tobytes()).decode()]}


def _numpy_from_data(kind: str, shape: list[int] | None, data: str) -> Any:
    array = library("numpy").zeros([1] if shape is None else shape, dtype=kind)
    if array.nbytes:
        array.flat = library("numpy").frombuffer(base64.b64decode(data), dtype=kind)
    return array[0] if shape is None else array


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
_DICTS: dict[type, str] = {
    dict: "dict",
    OrderedDict: "OrderedDict",
    Counter: "Counter",
    defaultdict: "defaultdict",
}
_FACTORIES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (int, float, bool, str, list, dict, set, tuple, deque, Counter, OrderedDict)
}
_CONTAINERS: dict[str, Any] = {
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$deque": deque,
}

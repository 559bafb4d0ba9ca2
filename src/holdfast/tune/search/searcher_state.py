"""Converts the attributes of a searcher to data and back.

Besides what configs may contain, attributes may be sets, deques, counters, ordered dicts, default
dicts with a common default, numpy numbers and arrays, and random generators. All of them come back
with the same type; subclasses may hold more, and are refused. Functions, classes, modules, loggers
and search domains are skipped: the constructor sets them again before a state is restored.
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

from holdfast.core.config_data import CONFIG_FORMS, CONFIG_READERS
from holdfast.core.plain_data import (
    KeyStep,
    NotPlain,
    Reader,
    Steps,
    Writer,
    items,
    kind_of,
    marked_pairs,
    pairs,
    read_items,
    read_pairs,
    refused,
)
from holdfast.data.libraries import is_instance, library
from holdfast.errors import ConfigError
from holdfast.tune.search.domains import Domain

if TYPE_CHECKING:
    from holdfast.tune.search.searcher import Searcher

_SKIPPED = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    type,
    logging.Logger,
    Domain,
)


class NotData(Exception):
    """A value cannot be converted to data; the message says where it is."""


def to_data(value: Any, where: str) -> Any:
    """Return a value as data for JSON, or raise NotData, with `where` it is."""
    try:
        return _write(value)
    except NotPlain as problem:
        inside = "".join(f"[{step!r}]" for step in problem.steps if step is not KeyStep)
        raise NotData(f"{where}{inside}: this is {problem.reason}") from None


def memory_of(searcher: Searcher) -> dict[str, Any]:
    """Return the attributes of a searcher as data.

    If one cannot be converted, use the searcher's own `save`, if it has one.

    Raises:
        ConfigError: An attribute cannot be stored; names it, and the methods to write.
    """
    attributes: dict[str, Any] = {}
    problems: list[str] = []
    inner: dict[str, Any] = {}
    for name, value in vars(searcher).items():
        if isinstance(value, _SKIPPED):
            continue
        if hasattr(value, "suggest") and hasattr(value, "get_state"):  # a searcher inside
            inner[name] = value.get_state()
            continue
        try:
            if not _is_space(value):
                attributes[name] = to_data(value, f"self.{name}")
        except NotData as problem:
            problems.append(str(problem))
        except RecursionError:
            problems.append(f"self.{name}: it contains itself, or is nested too deeply")
    if not problems:
        return {"vars": attributes, "searchers": inner}
    if searcher.saves_itself():
        return {"file": _file_of(searcher)}
    listed = "".join(f"\n  - {problem}" for problem in problems)
    kind = type(searcher).__name__
    raise ConfigError(
        f"the state of {kind} cannot be stored, so it would be lost in a crash:{listed}",
        hint=f"write {kind}.get_state() -> dict and set_state(state), with plain data, or "
        "save(path) and restore(path)",
    )


def remember(searcher: Searcher, state: dict[str, Any]) -> None:
    """Set the attributes of a searcher to what `memory_of` returned."""
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


def _default_dict(writer: Writer, value: defaultdict[Any, Any], steps: Steps) -> Any:
    factory = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if name is not None and _FACTORIES.get(name) is not factory:
        names = ", ".join(_FACTORIES)
        raise NotPlain(f"a defaultdict whose default factory is not one of {names}", steps)
    return {"$defaultdict": [name, pairs(writer, value, steps)]}


def _read_default_dict(reader: Reader, data: dict[str, Any]) -> defaultdict[Any, Any]:
    name, inside = data["$defaultdict"]
    factory = None if name is None else _FACTORIES[name]
    return defaultdict(factory, {reader(key): reader(inner) for key, inner in inside})


def _deque(writer: Writer, value: deque[Any], steps: Steps) -> Any:
    inside = items(writer, value, steps)
    is_bounded = value.maxlen is not None
    return {"$bounded_deque": [value.maxlen, inside]} if is_bounded else {"$deque": inside}


def _read_bounded_deque(reader: Reader, data: dict[str, Any]) -> deque[Any]:
    maxlen, inside = data["$bounded_deque"]
    return deque(map(reader, inside), maxlen)


def _set(writer: Writer, value: Any, steps: Steps) -> Any:
    """Write a set in an order that is the same in every process."""
    return {f"${type(value).__name__}": items(writer, sorted(value, key=repr), steps)}


def _random(writer: Writer, value: random.Random, steps: Steps) -> Any:
    return {"$random": writer(value.getstate(), steps)}


def _read_random(reader: Reader, data: dict[str, Any]) -> random.Random:
    generator = random.Random()
    generator.setstate(reader(data["$random"]))
    return generator


def _numpy_or_refused(writer: Writer, value: Any, steps: Steps) -> Any:
    if is_instance(value, "numpy", "generic") or is_instance(value, "numpy", "ndarray"):
        return _numpy_to_data(value, steps)
    if is_instance(value, "numpy.random", "RandomState"):
        name, keys, *rest = value.get_state()
        return {"$numpy_random_state": [name, keys.tolist(), *rest]}
    if is_instance(value, "numpy.random", "Generator"):
        return {"$numpy_generator": writer(_listed(value.bit_generator.state), steps)}
    return refused(writer, value, steps)


def _read_numpy_random_state(_reader: Reader, data: dict[str, Any]) -> Any:
    generator = library("numpy.random").RandomState()
    generator.set_state(tuple(data["$numpy_random_state"]))
    return generator


def _numpy_to_data(value: Any, steps: Steps) -> dict[str, Any]:
    """Return a numpy number or array as its type, its shape and its bytes."""
    array = library("numpy").asarray(value, order="C")
    is_exact = type(value) in (library("numpy").ndarray, array.dtype.type)
    if not is_exact or array.dtype.kind not in "biufcmMSU":
        raise NotPlain(f"{kind_of(value)} of {array.dtype}", steps)
    shape = list(array.shape) if type(value) is library("numpy").ndarray else None
    return {"$numpy": [array.dtype.str, shape, base64.b64encode(array.tobytes()).decode()]}


def _numpy_from_data(kind: str, shape: list[int] | None, data: str) -> Any:
    array = library("numpy").zeros([1] if shape is None else shape, dtype=kind)
    if array.nbytes:
        array.flat = library("numpy").frombuffer(base64.b64decode(data), dtype=kind)
    return array[0] if shape is None else array


def _is_space(value: Any) -> bool:
    """Return whether a value contains a domain: the constructor sets search spaces again."""
    if isinstance(value, dict):
        return any(map(_is_space, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_is_space, value))
    return isinstance(value, Domain)


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def _read_numpy_generator(reader: Reader, data: dict[str, Any]) -> Any:
    numpy_random = library("numpy.random")
    state = reader(data["$numpy_generator"])
    kind = state["bit_generator"]
    if kind not in _NUMPY_GENERATORS:
        raise ValueError(f"{kind!r} is not a numpy random generator")
    bits = getattr(numpy_random, kind)()
    bits.state = state
    return numpy_random.Generator(bits)


_NUMPY_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_FACTORIES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (int, float, bool, str, list, dict, set, tuple, deque, Counter, OrderedDict)
}
_write = Writer(
    forms={
        **CONFIG_FORMS,
        OrderedDict: marked_pairs("$OrderedDict"),
        Counter: marked_pairs("$Counter"),
        defaultdict: _default_dict,
        set: _set,
        frozenset: _set,
        deque: _deque,
        random.Random: _random,
    },
    otherwise=_numpy_or_refused,
)
from_data = Reader(
    {
        **CONFIG_READERS,
        **read_items("$set", set),
        **read_items("$frozenset", frozenset),
        **read_items("$deque", deque),
        **read_pairs("$OrderedDict", OrderedDict),
        **read_pairs("$Counter", Counter),
        "$defaultdict": _read_default_dict,
        "$bounded_deque": _read_bounded_deque,
        "$numpy": lambda _reader, data: _numpy_from_data(*data["$numpy"]),
        "$random": _read_random,
        "$numpy_random_state": _read_numpy_random_state,
        "$numpy_generator": _read_numpy_generator,
    }
)

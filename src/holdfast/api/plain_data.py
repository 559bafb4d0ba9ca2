"""Converts values to JSON and back without losing their types; other values are `NotPlain`.

Plain values are numbers, strings, None, lists, dictionaries, tuples, paths, checkpoints (as a
reference to their files), functions and classes that can be imported, dataclasses of such classes,
and `Made` objects whose arguments are plain. A type that JSON lacks is a dictionary with one key
that begins with `@`; a user's key that begins with `@` gets a second one.

The JSON holds no secrets: a checkpoint's URI is written without its credentials.
"""

from __future__ import annotations

import dataclasses
import inspect
import pathlib
import urllib.parse
from types import FunctionType
from typing import Any

from holdfast.api.imports import import_path
from holdfast.api.recorded_call import Made
from holdfast.api.recorded_names import (
    NameRefused,
    Trust,
    class_path,
    only_holds_fields,
    recorded_class,
    recorded_dataclass,
    recorded_thing,
)
from holdfast.checkpoint import Checkpoint
from holdfast.storage import uris

NEVER_KEPT = "never kept"  # in a dataclass field's metadata: it may hold secrets

_MARK = "@"
_DEPTH_MAX = 100


class NotPlain(Exception):
    """A value that would not come back from JSON the same."""


class CannotBeMade(ValueError):
    """A recorded value cannot, or must not, be rebuilt; the message says why."""


def to_plain(value: object, depth: int = 0) -> Any:
    """Return `value` as JSON data; raise `NotPlain` if it would not come back the same."""
    if depth > _DEPTH_MAX:
        raise NotPlain("it is nested too deeply, or holds itself")
    kind, deeper = type(value), depth + 1
    if value is None or kind in (bool, int, float):
        return value
    if kind is str:
        return _text(str(value))
    if isinstance(value, list | tuple | dict) and kind in (list, tuple, dict):
        return _container(value, deeper)
    if isinstance(value, pathlib.PurePath) and kind is type(pathlib.Path()):
        return {"@path": _text(str(value))}
    if isinstance(value, Checkpoint) and kind is Checkpoint:
        return {"@checkpoint": reference_to(value)}
    if isinstance(value, type | FunctionType) and (path := import_path(value)) is not None:
        return {"@import": path}
    if isinstance(value, Made):
        return {"@made": _made(value, deeper)}
    if dataclasses.is_dataclass(kind):
        return {"@dataclass": _dataclass(value, kind, deeper)}
    raise NotPlain(f"{kind.__module__}.{kind.__qualname__} has no form in JSON")


def from_plain(value: Any, beside: str | None = None, *, trust: Trust = Trust.RESTORING) -> Any:
    """Return the value that `to_plain` was given; raise `CannotBeMade`.

    Checkpoints in the bucket of the URI `beside` are opened with its query. `trust` says which
    classes and functions the value may name.
    """
    try:
        return _Reader(beside, trust).value(value, 0)
    except CannotBeMade:
        raise
    except NameRefused as refused:
        raise CannotBeMade(str(refused)) from refused
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise CannotBeMade(f"it is damaged: {error}") from error


class _Reader:
    """Rebuilds the values of one record."""

    def __init__(self, beside: str | None, trust: Trust) -> None:
        self._beside, self._trust = beside, trust

    def value(self, value: Any, depth: int) -> Any:
        if depth > _DEPTH_MAX * 2:  # the writer's limit, with its `@` levels
            raise CannotBeMade("it is nested too deeply")
        deeper = depth + 1
        if isinstance(value, list):
            return [self.value(item, deeper) for item in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"@tuple": list(items)}:
                return tuple(self.value(item, deeper) for item in items)
            case {"@pairs": list(pairs)}:
                return self._no_code(
                    {self.value(k, deeper): self.value(v, deeper) for k, v in pairs}
                )
            case {"@path": str(path)}:
                return pathlib.Path(path)
            case {"@checkpoint": str(location)}:
                return Checkpoint(opened_as(location, self._beside))
            case {"@import": path}:
                return recorded_thing(path, self._trust)
            case {"@made": {"class": path, "args": list(args), "kwargs": dict(kwargs)}}:
                return self._called(recorded_class(path, self._trust), args, kwargs, deeper)
            case {"@dataclass": {"class": path, "fields": dict(fields)}}:
                return self._called(recorded_dataclass(path, self._trust), [], fields, deeper)
            case _:
                return self._no_code(
                    {key.removeprefix(_MARK): self.value(v, deeper) for key, v in value.items()}
                )

    def _called(self, kind: type[Any], args: Any, kwargs: Any, depth: int) -> Any:
        positional = [self.value(argument, depth) for argument in args]
        named = {name: self.value(argument, depth) for name, argument in kwargs.items()}
        try:
            return kind(*positional, **named)
        except Exception as error:  # its constructor may be the user's own
            raise CannotBeMade(f"{kind.__qualname__}(…): {error}") from error

    def _no_code(self, entries: dict[Any, Any]) -> dict[Any, Any]:
        """Return the dictionary, unless it is an expression that a search space would evaluate."""
        is_code = entries.keys() == {"eval"} and isinstance(entries["eval"], str)
        if is_code and self._trust is not Trust.RUNNING:
            raise CannotBeMade(f"{entries} is code, which is not run from a record")
        return entries


def _container(value: list[Any] | tuple[Any, ...] | dict[Any, Any], depth: int) -> Any:
    if isinstance(value, list):
        return [to_plain(item, depth) for item in value]
    if isinstance(value, tuple):
        return {"@tuple": [to_plain(item, depth) for item in value]}
    if all(type(key) is str for key in value):
        return {
            f"{_MARK}{key}" if key.startswith(_MARK) else _text(key): to_plain(item, depth)
            for key, item in value.items()
        }
    return {"@pairs": [[to_plain(part, depth) for part in pair] for pair in value.items()]}


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotPlain("a string holds half a surrogate pair") from None
    return value


def _made(value: Made, depth: int) -> dict[str, Any]:
    path = class_path(type(value))
    if path is None or not value.may_be_recorded:
        raise NotPlain(f"the class {type(value).__qualname__} cannot be found again by its name")
    args, kwargs = value.made_with
    return {
        "class": path,
        "args": [to_plain(argument, depth) for argument in args],
        "kwargs": {name: to_plain(argument, depth) for name, argument in kwargs.items()},
    }


def _dataclass(value: Any, kind: type, depth: int) -> dict[str, Any]:
    name = import_path(kind)
    if name is None:
        raise NotPlain(f"the class {kind.__qualname__} cannot be imported")
    given = {field.name for field in dataclasses.fields(value)}
    is_more = any(not field.init for field in dataclasses.fields(value))
    required = {
        parameter.name
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.default is parameter.empty
    }
    held = getattr(value, "__dict__", dict.fromkeys(given)).keys()
    is_ours = kind.__module__.startswith("holdfast.")  # running our own checks again is harmless
    is_more |= not is_ours and not only_holds_fields(kind)
    if is_more or held - given or required - given:
        raise NotPlain(f"an instance of {kind.__qualname__} is more than its fields")
    fields = {
        field.name: to_plain(field.default if NEVER_KEPT in field.metadata else given, depth)
        for field in sorted(dataclasses.fields(value), key=lambda field: field.name)
        for given in [getattr(value, field.name)]
    }
    return {"class": name, "fields": fields}


# ---------------------------------------------------------------------- checkpoints by reference


def reference_to(checkpoint: Checkpoint) -> str:
    """Return the location of a checkpoint's files, without credentials."""
    return uris.without_credentials(location_of(checkpoint))


def location_of(checkpoint: Checkpoint) -> str:
    """Return the location of a checkpoint's files, with the options that open its store."""
    state = checkpoint.__getstate__()
    if state["_given_filesystem"] is not None:
        raise NotPlain("the checkpoint is on a filesystem object")
    location: str = state["_location"]
    if "://" not in location:
        return _text(location)
    place, _, query = location.partition("?")
    options = dict(urllib.parse.parse_qsl(query))
    if state["_run"] is not None:
        options = {**state["_run"][0].get("options", {}), **options}
    return f"{place}?{urllib.parse.urlencode(options)}" if options else place


def opened_as(location: str, beside: str | None) -> str:
    """Return a location with the options of `beside` added, if both are in the same bucket."""
    if beside is None or "://" not in location or "?" not in beside:
        return location
    place, _, query = location.partition("?")
    beside_place, _, secrets = beside.partition("?")
    if place.split("/")[:3] != beside_place.split("/")[:3]:
        return location
    options = dict(urllib.parse.parse_qsl(secrets)) | dict(urllib.parse.parse_qsl(query))
    return f"{place}?{urllib.parse.urlencode(options)}"

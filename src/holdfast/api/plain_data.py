"""Values as JSON that come back as they were, types and all; what cannot, is said to be not plain.

Plain are numbers, text, None, lists, dictionaries, tuples, paths, checkpoints (as a reference to
their files), functions and classes that can be imported, dataclasses of such classes, and what
is `Made` with such values. A thing
that JSON has no word for is a dictionary with one key that begins with `@`; a key of the user's own
that begins so gets another.

No secrets: of a checkpoint's URI, what opens its store stays out.
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

NEVER_KEPT = "never kept"  # in the metadata of a dataclass's field: it may hold secrets

_MARK = "@"
_DEPTH_MAX = 100


class NotPlain(Exception):
    """A value that JSON cannot give back as it was."""


class CannotBeMade(ValueError):
    """A value of a record cannot, or may not, be made again; the message says why."""


def to_plain(value: object, depth: int = 0) -> Any:
    """Return `value` as JSON has it; raise `NotPlain` if it would not come back the same."""
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

    The query of the URI `beside` opens the stores of checkpoints in the same bucket, too. `trust`
    says how far the names of classes and functions in it are believed.
    """
    try:
        return _Reader(beside, trust).value(value, 0)
    except CannotBeMade:
        raise
    except NameRefused as refused:
        raise CannotBeMade(str(refused)) from refused
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise CannotBeMade(f"it is not as it was written: {error}") from error


class _Reader:
    """Makes values from what a record says, for one purpose."""

    def __init__(self, beside: str | None, trust: Trust) -> None:
        self._beside, self._trust = beside, trust

    def value(self, value: Any, depth: int) -> Any:
        if depth > _DEPTH_MAX * 2:  # what was written is less deep
            raise CannotBeMade("it is nested too deeply")
        deeper = depth + 1
        if isinstance(value, list):
            return [self.value(one, deeper) for one in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"@tuple": list(items)}:
                return tuple(self.value(one, deeper) for one in items)
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

    def _called(self, kind: type[Any], args: Any, fields: Any, depth: int) -> Any:
        taken = [self.value(one, depth) for one in args]
        named = {name: self.value(one, depth) for name, one in fields.items()}
        try:
            return kind(*taken, **named)
        except Exception as error:  # its constructor may be the user's own
            raise CannotBeMade(f"{kind.__qualname__}(…): {error}") from error

    def _no_code(self, found: dict[Any, Any]) -> dict[Any, Any]:
        """Return a dictionary, unless it is an expression for a search space to evaluate."""
        is_code = found.keys() == {"eval"} and isinstance(found["eval"], str)
        if is_code and self._trust is not Trust.RUNNING:
            raise CannotBeMade(f"{found} is code, which is not run from a record")
        return found


def _container(value: list[Any] | tuple[Any, ...] | dict[Any, Any], depth: int) -> Any:
    if isinstance(value, list):
        return [to_plain(one, depth) for one in value]
    if isinstance(value, tuple):
        return {"@tuple": [to_plain(one, depth) for one in value]}
    if all(type(key) is str for key in value):
        return {
            f"{_MARK}{key}" if key.startswith(_MARK) else _text(key): to_plain(one, depth)
            for key, one in value.items()
        }
    return {"@pairs": [[to_plain(key, depth), to_plain(one, depth)] for key, one in value.items()]}


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotPlain("a text holds half a character") from None
    return value


def _made(value: Made, depth: int) -> dict[str, Any]:
    path = class_path(type(value))
    if path is None or not value.may_be_recorded:
        raise NotPlain(f"the class {type(value).__qualname__} cannot be found again by its name")
    args, kwargs = value.made_with
    return {
        "class": path,
        "args": [to_plain(one, depth) for one in args],
        "kwargs": {name: to_plain(one, depth) for name, one in kwargs.items()},
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
    is_ours = kind.__module__.startswith("holdfast.")  # whose checks may be made twice
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
    """Return where a checkpoint's files are, without what is secret about it."""
    return uris.without_credentials(location_of(checkpoint))


def location_of(checkpoint: Checkpoint) -> str:
    """Return where a checkpoint's files are, with all that opens its store."""
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
    """Return a checkpoint's location with what opens its store, if `beside` is in that store."""
    if beside is None or "://" not in location or "?" not in beside:
        return location
    place, _, query = location.partition("?")
    other, _, secrets = beside.partition("?")
    if place.split("/")[:3] != other.split("/")[:3]:
        return location
    options = dict(urllib.parse.parse_qsl(secrets)) | dict(urllib.parse.parse_qsl(query))
    return f"{place}?{urllib.parse.urlencode(options)}"

"""Checks that a function can be pickled for workers, and names the variable if it cannot.

Pickle's own "cannot pickle '_thread.lock' object" names neither the variable nor the function that
uses it. So everything pickled with a function is tried one by one: what it has captured, the
globals it uses, its defaults, the object it is a method of, and its config.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

import cloudpickle

from holdfast.api.bindings import captured_at, set_at
from holdfast.api.deprecated import warn_user
from holdfast.api.signature import name_of
from holdfast.errors import ConfigError

LARGE_BYTES = 100 << 20
_DEPTH_MAX = 100


@dataclass(frozen=True, slots=True)
class Part:
    """A value that is pickled together with the function or object it belongs to.

    Attributes:
        name: `lock` for a variable; `.lock` or `['lock']` for a part of an object.
        user: The function that uses it, if it is a variable.
        where: Where it comes from, for the message.
    """

    value: object
    name: str
    user: str | None = None
    where: str = ""


def must_travel(
    function: Callable[..., Any],
    config: Mapping[str, Any] | None,
    *,
    role: str = "training",
    name: str | None = None,
) -> None:
    """Raise, naming the culprit, if a function or its config cannot be sent to workers.

    Warns if they are so large that they delay every start of a worker. `role` is the function's
    role in messages, and `name` its name, if that is not its own.
    """
    name = name or name_of(function)
    size = 0
    for value in (function, config):
        try:
            size += len(cloudpickle.dumps(value))
        except Exception as error:  # any object's own pickling may raise anything
            raise _refusal(name, value, error, role, is_config=value is config) from error
    if size > LARGE_BYTES:
        warn_user(_size_warning(function, config, size, name))


def pickling_problem(value: object) -> str | None:
    """Return why a value cannot be sent to another process, None if it can."""
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001  # any object's own pickling may raise anything
        return str(error) or type(error).__name__
    return None


def unpicklable_parts(value: object) -> set[str]:
    """Return a sentence on each part of a function or class that cannot be pickled."""
    reason = pickling_problem(value)
    if reason is None:
        return set()
    name = name_of(value)
    sentences = {
        _blame([part, *_culprit(part.value)], name)
        for part in _parts(value)
        if not _is_picklable(part.value)
    }
    return sentences or {f"`{name}` cannot be pickled: {reason}"}


# ---------------------------------------------------------------------- messages


def _refusal(
    name: str, value: object, error: Exception, role: str, *, is_config: bool
) -> ConfigError:
    trail = _culprit(value)
    last = trail[-1].value if trail else value
    if not trail and not is_config:
        why = f"{type(error).__name__}: {error}"
    elif is_config:
        path = "train_loop_config" + "".join(part.name for part in trail)
        why = f"{path} ({_with_article(last)}) cannot be pickled"
    else:
        why = _blame(trail, name)
    return ConfigError(
        f"the {role} function `{name}` cannot be sent to workers: {why}",
        hint=f"create it inside the {role} function, which runs in the worker",
    )


def _blame(trail: list[Part], root: str) -> str:
    """Return a sentence that names the variable to blame, and the part of it."""
    places = [place for place, part in enumerate(trail) if part.user is not None]
    inside = "".join(part.name for part in trail[places[-1] + 1 if places else 0 :])
    if not places:
        return f"its `{inside}` ({_with_article(trail[-1].value)}) cannot be pickled"
    part = trail[places[-1]]
    uses = "it uses" if part.user == root else f"that `{part.user}` uses"
    facts = ", ".join(filter(None, [_with_article(part.value), part.where]))
    because = f": its `{inside}` is {_with_article(trail[-1].value)}" if inside else ""
    return f"the variable `{part.name}` {uses} ({facts}) cannot be pickled{because}"


def _with_article(value: object) -> str:
    """Return the type of a value with its article: "a _thread.lock"."""
    kind = type(value)
    if isinstance(value, type):
        return "a class"
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    name = f"{module}{kind.__qualname__}".replace("<locals>.", "")
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"


def _size_warning(
    function: Callable[..., Any], config: Mapping[str, Any] | None, size: int, name: str
) -> str:
    parts = [*_parts(function), *(_entries(config or {}, "train_loop_config"))]
    sized = [(len(cloudpickle.dumps(part.value)), part) for part in parts]
    largest, part = max(sized, key=lambda pair: pair[0], default=(0, None))
    named = f", {largest / 1e6:.0f} MB of them `{part.name}`" if part is not None else ""
    return (
        f"the training function `{name}` and the values it uses are"
        f" {size / 1e6:.0f} MB{named}: every worker waits for that at every start."
        " Load large data inside the function, from files"
    )


# ---------------------------------------------------------------------- looking for the culprit


def _culprit(value: object) -> list[Part]:
    """Return the parts on the way from `value` to the smallest one that cannot be pickled."""
    trail: list[Part] = []
    seen = {id(value)}
    for _ in range(_DEPTH_MAX):
        for part in _parts(value):
            if id(part.value) not in seen and not _is_picklable(part.value):
                break
        else:
            return trail
        trail.append(part)
        value = part.value
        seen.add(id(value))
    return trail


def _is_picklable(value: object) -> bool:
    return pickling_problem(value) is None


def _parts(value: object) -> Iterator[Part]:
    match value:
        case FunctionType():
            yield from _variables(value)
        case MethodType():
            where = f"the object that `{name_of(value)}` is a method of"
            yield Part(value.__self__, "self", name_of(value), where)
            yield from _parts(value.__func__)
        case functools.partial():
            user, where = name_of(value), "an argument given by functools.partial"
            for position, argument in enumerate(value.args):
                yield Part(argument, _parameter(value.func, position), user, where)
            for name, argument in value.keywords.items():
                yield Part(argument, name, user, where)
            yield from _parts(value.func)
        case Mapping() | list() | tuple() | set() | frozenset():
            yield from _entries(value)
        case type():
            for name, item in vars(value).items():
                if not inspect.isdatadescriptor(item) or isinstance(item, property):
                    inner = item.__func__ if isinstance(item, classmethod | staticmethod) else item
                    yield Part(inner, f".{name}")
        case _:
            yield from _attributes(value)


def _variables(function: FunctionType) -> Iterator[Part]:
    code, user = function.__code__, name_of(function)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:
            continue  # not set yet
        around = function.__qualname__.rpartition(".<locals>.")[0].rpartition(".")[2]
        place = captured_at(code, name)
        of = f"captured from the enclosing function `{around}`" if around else "captured"
        yield Part(value, name, user, f"{of} at {place}" if place else of)
    for name in sorted(_names_in(code) & function.__globals__.keys()):
        place = set_at(code, name)
        yield Part(
            function.__globals__[name],
            name,
            user,
            f"a global set at {place}" if place else "a global",
        )
    yield from _defaults(function)
    for name, value in vars(function).items():
        yield Part(value, f".{name}")


def _defaults(function: FunctionType) -> Iterator[Part]:
    user, where = name_of(function), "the default of an argument"
    defaults = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    for name, value in zip(names[len(names) - len(defaults) :], defaults, strict=True):
        yield Part(value, name, user, where)
    for name, value in (function.__kwdefaults__ or {}).items():
        yield Part(value, name, user, where)


def _names_in(code: CodeType) -> set[str]:
    """Return the names that code looks up, including in the functions inside it."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


def _parameter(function: Callable[..., Any], position: int) -> str:
    try:
        names = list(inspect.signature(function).parameters)
    except (ValueError, TypeError):
        names = []
    return names[position] if position < len(names) else f"argument {position + 1}"


def _entries(value: Any, name: str = "") -> Iterator[Part]:
    entries = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, entry in entries:
        yield Part(entry, f"{name}[{key!r}]")


def _attributes(value: object) -> Iterator[Part]:
    kind = type(value)
    yield Part(kind, f".__class__ ({kind.__qualname__})")
    for name, attribute in getattr(value, "__dict__", {}).items():
        yield Part(attribute, f".{name}")
    for above in kind.__mro__:
        slots = above.__dict__.get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield Part(getattr(value, name), f".{name}")

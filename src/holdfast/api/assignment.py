"""What all config classes share: checked assignment, copies, and a repr of what was set.

Scripts build configs step by step, `run_config.name = …`; each assignment is checked as the
constructor checks, and a refused one changes nothing. A trainer or tuner works on `own_copy` of a
config, so that later assignments do not affect it.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import inspect
from typing import Any, TypeVar

from holdfast.errors import ConfigError
from holdfast.storage.uris import without_secrets

T = TypeVar("T")

_ASSIGNABLE = "_is_assignable"


class UnknownField(ConfigError, AttributeError):
    """An assignment to a field that a config does not have."""


def assignable(kind: type[T]) -> type[T]:
    """Class decorator: a dataclass checks assignments, and refuses fields it does not have."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    arguments = inspect.signature(kind).parameters
    older = [name for name in arguments if name not in names]  # former names of fields

    def __setattr__(self: Any, name: str, value: object) -> None:  # noqa: N807
        if name in older:
            vars(self).update(vars(_changed(kind, self, names, name, value)))
        elif name not in names:
            if _is_ours(type(self)):
                raise _unknown(kind.__name__, name, names)
            object.__setattr__(self, name, value)  # a field of a user's subclass
        elif name not in vars(self):
            object.__setattr__(self, name, value)  # the constructor is running
        else:
            vars(self).update(vars(_changed(kind, self, names, name, value)))

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if name not in names:
            object.__delattr__(self, name)
            return
        raise ConfigError(
            f"{kind.__name__}.{name} cannot be deleted: a config has all its fields",
            hint=f"assign another value, or make another {kind.__name__}",
        )

    kind.__setattr__ = __setattr__  # type: ignore[method-assign]
    kind.__delattr__ = __delattr__  # type: ignore[method-assign]
    setattr(kind, _ASSIGNABLE, True)
    return kind


def own_copy(config: T) -> T:
    """Return a copy that shares no config, list or dictionary with the original.

    Anything else in it, such as a scheduler, is the same object. A value that is no config is
    returned unchanged.
    """
    if not _is_config(config):
        return config
    copied = copy.copy(config)
    for name, value in vars(config).items():
        is_container = type(value) in (list, dict)
        vars(copied)[name] = copy.copy(value) if is_container else own_copy(value)
    return copied


def config_repr(config: Any, default: Any, always: tuple[str, ...] = ()) -> str:
    """Return the repr of a config, without secrets: fields that differ from `default`, or `always`.

    It reads as the call that would build the config.
    """
    changed = (
        f"{field.name}={_value_repr(getattr(config, field.name))}"
        for field in dataclasses.fields(config)
        if field.name in always or getattr(config, field.name) != getattr(default, field.name)
    )
    return f"{type(config).__name__}({', '.join(changed)})"


def _value_repr(value: object) -> str:
    return repr(without_secrets(value) if isinstance(value, str) else value)


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "holdfast"


def _is_config(value: object) -> bool:
    return getattr(type(value), _ASSIGNABLE, False) is True


def _changed(kind: type[T], config: Any, names: list[str], name: str, value: object) -> T:
    """Return the config with one field changed; raise if the constructor refuses it."""
    values = {field: getattr(config, field) for field in names}
    values[name] = value
    changed: T = kind(**values)
    settle = getattr(changed, "_settle_change", None)
    if settle is not None:
        settle(config, name, value)
    return changed


def _unknown(kind: str, name: str, names: list[str]) -> UnknownField:
    near = difflib.get_close_matches(name, names, n=1)
    return UnknownField(
        f"{kind}.{name} = …: there is no such field",
        hint=f"{near[0]}, if that was meant" if near else f"one of {', '.join(names)}",
    )

"""Configs that can be assigned to: every assignment is checked as the constructor checks.

Scripts build configs step by step, `run_config.name = …`. What is refused changes nothing. Whoever
works with a config, such as a trainer, takes `own_copy` of it, so that nothing moves under it.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import inspect
from typing import Any, TypeVar

from holdfast.errors import ConfigError

T = TypeVar("T")

_ASSIGNABLE = "_is_assignable"


class UnknownField(ConfigError, AttributeError):
    """A config was assigned something by a name that it does not have."""


def assignable(kind: type[T]) -> type[T]:
    """Have a dataclass check what is assigned to its fields, and refuse names it does not have."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    arguments = inspect.signature(kind).parameters
    older = [name for name in arguments if name not in names]  # what fields were called

    def __setattr__(self: Any, name: str, value: object) -> None:  # noqa: N807
        if name in older:
            vars(self).update(vars(_changed(kind, self, names, name, value)))
        elif name not in names:
            if _is_ours(type(self)):
                raise _unknown(kind.__name__, name, names)
            object.__setattr__(self, name, value)  # a field of a class made from this one
        elif name not in vars(self):
            object.__setattr__(self, name, value)  # it is being made
        else:
            changed = _changed(kind, self, names, name, value)
            vars(self).update(vars(changed))

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
    """Return a copy of a config in which no config, list or dictionary is shared with it.

    Anything else, such as a scheduler, is the same object; what is no config is returned as it is.
    """
    if not _is_config(config):
        return config
    made = copy.copy(config)
    for name, value in vars(config).items():
        vars(made)[name] = _own(value)
    return made


def _own(value: Any) -> Any:
    if _is_config(value):
        return own_copy(value)
    return copy.copy(value) if type(value) in (list, dict) else value


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "holdfast"


def _is_config(value: object) -> bool:
    return getattr(type(value), _ASSIGNABLE, False) is True


def _changed(kind: type[T], config: Any, names: list[str], name: str, value: object) -> T:
    """Return a config with one field changed; raise if it could not have been made so."""
    values = {one: getattr(config, one) for one in names}
    values[name] = value
    made: T = kind(**values)
    settle = getattr(made, "_settle_change", None)
    if settle is not None:
        settle(config, name, value)
    return made


def _unknown(kind: str, name: str, names: list[str]) -> UnknownField:
    near = difflib.get_close_matches(name, names, n=1)
    return UnknownField(
        f"{kind}.{name} = …: there is no such field",
        hint=f"{near[0]}, if that was meant" if near else f"one of {', '.join(names)}",
    )

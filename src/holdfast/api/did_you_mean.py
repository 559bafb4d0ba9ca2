"""Arguments that a class does not have, told with the one that was probably meant."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.errors import ConfigError

T = TypeVar("T")


class UnknownArgument(ConfigError, TypeError):
    """A class was given an argument that it does not have."""


def spelled(kind: type[T]) -> type[T]:
    """Have a class, below `@dataclass` if it is one, tell of arguments that it does not have."""
    made: Callable[..., None] = kind.__init__
    known = [name for name in inspect.signature(made).parameters if name != "self"]

    @functools.wraps(made)
    def __init__(self: T, *values: Any, **named: Any) -> None:  # noqa: N807
        for name in named:
            if name not in known:
                raise _unknown(type(self).__name__, name, known)
        made(self, *values, **named)

    kind.__init__ = __init__  # type: ignore[assignment]
    return kind


def _unknown(kind: str, name: str, known: list[str]) -> UnknownArgument:
    public = [one for one in known if not one.startswith("_")]
    near = difflib.get_close_matches(name, public, n=1)
    return UnknownArgument(
        f"{kind}({name}=…): there is no such argument",
        hint=f"{near[0]}=…, if that was meant" if near else f"one of {', '.join(public)}",
    )

"""Errors for unknown constructor arguments that suggest the one probably meant."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.errors import ConfigError

T = TypeVar("T")


class UnknownArgument(ConfigError, TypeError):
    """A constructor was given an argument that it does not have."""


def rejects_unknown_arguments(kind: type[T]) -> type[T]:
    """Class decorator: unknown arguments raise `UnknownArgument`; goes above `@dataclass`."""
    original: Callable[..., None] = kind.__init__
    accepted = [name for name in inspect.signature(original).parameters if name != "self"]

    @functools.wraps(original)
    def __init__(self: T, *values: Any, **named: Any) -> None:  # noqa: N807
        for name in named:
            if name not in accepted:
                raise _unknown(type(self).__name__, name, accepted)
        original(self, *values, **named)

    kind.__init__ = __init__  # type: ignore[assignment]
    return kind


def _unknown(kind: str, name: str, accepted: list[str]) -> UnknownArgument:
    public = [argument for argument in accepted if not argument.startswith("_")]
    near = difflib.get_close_matches(name, public, n=1)
    return UnknownArgument(
        f"{kind}({name}=…): there is no such argument",
        hint=f"{near[0]}=…, if that was meant" if near else f"one of {', '.join(public)}",
    )

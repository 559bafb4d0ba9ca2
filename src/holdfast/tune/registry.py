"""Trainables and environments by names of the user's own, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.tune.errors import TuneError

_trainables: dict[str, Any] = {}
_environments: dict[str, Callable[..., Any]] = {}


def register_trainable(name: str, trainable: Any, warn: bool = True) -> None:  # noqa: FBT001, FBT002
    """Let `trainable`, a function or a class, be known by a name."""
    del warn
    if not callable(trainable):
        raise ConfigError(f"{shown(trainable)} is neither a function nor a class that can be run")
    _trainables[name] = trainable


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Let a function that makes an environment be known by a name."""
    if not callable(env_creator):
        raise ConfigError(f"{shown(env_creator)} is not a function")
    _environments[name] = env_creator


def registered(name: str) -> Any:
    """Return the trainable of a name; raise `TuneError` if there is none."""
    if name not in _trainables:
        known = ", ".join(sorted(_trainables)) or "none yet"
        raise TuneError(
            f"no trainable is registered as {name!r}; known are: {known}",
            hint=f"tune.register_trainable({name!r}, trainable)",
        )
    return _trainables[name]

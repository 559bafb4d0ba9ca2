"""Names that users register for trainables and environments, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.names import shown
from holdfast.tune.errors import InvalidStudy, NotRunnable

_trainables: dict[str, Any] = {}
_environments: dict[str, Callable[..., Any]] = {}


def register_trainable(name: str, trainable: Any, warn: bool = True) -> None:  # noqa: FBT001, FBT002
    """Register `trainable`, a function or a class, under a name."""
    del warn
    if not callable(trainable):
        raise NotRunnable(
            f"{name!r} cannot be {shown(trainable)}: a trainable is a function, or a class",
            hint=f"tune.register_trainable({name!r}, train_function)",
        )
    _trainables[name] = trainable


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Register a function that makes an environment under a name."""
    if not callable(env_creator):
        raise NotRunnable(
            f"{name!r} cannot be {shown(env_creator)}: an environment is made by a function",
            hint=f"tune.register_env({name!r}, lambda config: Environment(config))",
        )
    _environments[name] = env_creator


def registered(name: str) -> Any:
    """Return the trainable with this name; raise `InvalidStudy` if there is none."""
    if name not in _trainables:
        names = ", ".join(sorted(_trainables)) or "none yet"
        raise InvalidStudy(
            f"no trainable is registered as {name!r}; registered are: {names}",
            hint=f"tune.register_trainable({name!r}, trainable)",
        )
    return _trainables[name]

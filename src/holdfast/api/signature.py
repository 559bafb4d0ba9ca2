"""Checks that an object can be a training function, and whether it takes a config."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from holdfast.api.checks import this_is
from holdfast.core.names import shown
from holdfast.errors import ConfigError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def takes_config(function: Callable[..., Any], *, is_given: bool = False) -> bool:
    """Whether a training function takes its config; raise if it cannot be called as one.

    One with `*args`, such as a decorator's wrapper, takes a config only if there `is_given` one.
    """
    if not callable(function):
        raise ConfigError(
            f"train_loop_per_worker={shown(function)} is not a function, {this_is(function)}",
            hint="pass the training function itself, without calling it",
        )
    _must_run_when_called(function)
    parameters = _parameters(function)
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in (*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
    ]
    positional = [parameter.name for parameter in required if parameter.kind in _POSITIONAL]
    if len(positional) > 1:
        raise ConfigError(
            f"the training function `{name_of(function)}` requires {len(positional)} arguments"
            f" ({', '.join(positional)}); it gets one at most, its config",
            hint="pass the others inside train_loop_config, or use functools.partial",
        )
    if by_name := [parameter.name for parameter in required if parameter.kind not in _POSITIONAL]:
        raise ConfigError(
            f"the training function `{name_of(function)}` requires {', '.join(by_name)} by name;"
            " it gets one argument at most, its config",
            hint="pass it inside train_loop_config, or use functools.partial",
        )
    return any(
        parameter.kind in _POSITIONAL
        or (is_given and parameter.kind is inspect.Parameter.VAR_POSITIONAL)
        for parameter in parameters
    )


def name_of(function: object) -> str:
    """Return the name of a function for messages."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).rpartition("<locals>.")[2]


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        raise ConfigError(
            f"Python cannot tell which arguments `{name_of(function)}` takes",
            hint="wrap it: def train(config): …",
        ) from None


def _must_run_when_called(function: Callable[..., Any]) -> None:
    """Raise for coroutine and generator functions: calling them runs nothing."""
    called = function
    while isinstance(called, functools.partial):
        called = called.func
    if not inspect.isroutine(called) and not isinstance(called, type):
        called = type(called).__call__
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise ConfigError(
            f"the training function `{name_of(function)}` is `async def`: calling it runs nothing",
            hint="write def train(): asyncio.run(…)",
        )
    if inspect.isgeneratorfunction(called):
        raise ConfigError(
            f"the training function `{name_of(function)}` is a generator, because it has a"
            " `yield`: calling it runs nothing",
            hint="use holdfast.train.report(…) in place of yield",
        )

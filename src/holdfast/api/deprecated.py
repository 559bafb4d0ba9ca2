"""Warnings that point at the user's line, above all of deprecated names and arguments."""

from __future__ import annotations

import inspect
import warnings


def warn_deprecated(text: str) -> None:
    """Warn of a deprecation at the user's line; Python shows it once for each line."""
    warn_user(text, DeprecationWarning)


def warn_user(text: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line of the call stack that is outside Holdfast."""
    warnings.warn(text, kind, stacklevel=_levels_to_user())


def renamed(config: object, older: str, name: str, value: object) -> None:
    """Set a field from the argument that was its former name, with a warning, unless it is None."""
    if value is not None:
        warn_deprecated(f"{type(config).__name__}({older}=…) is now {name}=…")
        vars(config)[name] = value


def _levels_to_user() -> int:
    """Return the `stacklevel` of the innermost frame that is outside Holdfast."""
    frame = inspect.currentframe()
    levels = 0
    while frame is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        levels += 1
    return levels


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "holdfast"

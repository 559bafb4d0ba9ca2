"""Names and arguments of older eras: they work, and say at the user's own line what to write."""

from __future__ import annotations

import inspect
import warnings


def warn_deprecated(text: str) -> None:
    """Warn at the first line that is not ours; Python shows it once for each such line."""
    warn_user(text, DeprecationWarning)


def warn_user(text: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the first line that is not ours."""
    warnings.warn(text, kind, stacklevel=_levels_to_user())


def renamed(config: object, older: str, name: str, value: object) -> None:
    """Take what was given by an older name, if it was."""
    if value is not None:
        warn_deprecated(f"{type(config).__name__}({older}=…) is now {name}=…")
        vars(config)[name] = value


def _levels_to_user() -> int:
    """Return how many calls lie between the warning and the first line that is not ours."""
    frame = inspect.currentframe()
    levels = 0
    while frame is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        levels += 1
    return levels


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "holdfast"

"""How a config shows itself: what was set, and no secrets."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

_PASSWORD = re.compile(r"(?<=://)[^/@:]*:[^/@]*(?=@)")
_QUERY = re.compile(r"(?<=\?).+", re.DOTALL)


def readable(config: Any, plain: Any, always: tuple[str, ...] = ()) -> str:
    """Return how `config` is written, without what is as in `plain`, except for `always`."""
    changed = (
        f"{field.name}={_written(getattr(config, field.name))}"
        for field in dataclasses.fields(config)
        if field.name in always or getattr(config, field.name) != getattr(plain, field.name)
    )
    return f"{type(config).__name__}({', '.join(changed)})"


def without_secrets(path: str) -> str:
    """Return a storage path without the password and the query that a URI may have."""
    if "://" not in path:
        return path
    return _QUERY.sub("…", _PASSWORD.sub("…", path))


def _written(value: object) -> str:
    return repr(without_secrets(value) if isinstance(value, str) else value)

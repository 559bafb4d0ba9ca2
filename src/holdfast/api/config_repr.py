"""How a config shows itself: what was set, and no secrets."""

from __future__ import annotations

import dataclasses
from typing import Any

from holdfast.storage.uris import without_secrets


def readable(config: Any, plain: Any, always: tuple[str, ...] = ()) -> str:
    """Return how `config` is written, without what is as in `plain`, except for `always`."""
    changed = (
        f"{field.name}={_written(getattr(config, field.name))}"
        for field in dataclasses.fields(config)
        if field.name in always or getattr(config, field.name) != getattr(plain, field.name)
    )
    return f"{type(config).__name__}({', '.join(changed)})"


def _written(value: object) -> str:
    return repr(without_secrets(value) if isinstance(value, str) else value)

"""Large arguments, sent by reference although they were given as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import ConfigError
from holdfast.objects.refs import ObjectRef, get, put

LARGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Shared:
    """Stands for a value that was put on the user's behalf; who is given it gets the value."""

    ref: ObjectRef


def share_if_large(value: Any) -> Any:
    """Return what to send instead of a value: a `Shared` if it is large, or else itself.

    What cannot be put is returned as it is: whoever sends it says why it cannot be sent.
    """
    if isinstance(value, ObjectRef | Shared | str | int | float | bool | None):
        return value
    try:
        ref = put(value)
    except ConfigError:
        return value
    return Shared(ref) if ref.size_bytes >= LARGE_BYTES else value


def unshared(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with what they stand for in place of each `Shared`."""
    return {
        name: get(value.ref) if isinstance(value, Shared) else value
        for name, value in values.items()
    }

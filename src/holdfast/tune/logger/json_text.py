"""Whatever a result or a config holds, as JSON; what JSON has no word for becomes text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.core.metric_history import flattened

DEPTH_MAX = 100
_LEAVES = frozenset({float, int, str, bool, type(None)})


def encoded(value: Any) -> bytes:
    """Return `value` as `encode` does, in one line and as bytes; the quick way for plain data."""
    try:
        data = _encoder.encode(value)
    except Exception:  # noqa: BLE001  # whatever it is, the other way knows what to do
        return encode(value).encode()
    # It says null for what is None, but also for NaN and infinities, which have their names.
    return encode(value).encode() if b"null" in data else data


def encoded_lines(value: Any) -> bytes:
    """Return `value` as `encode` does, on several lines."""
    data = encoded(value)
    try:
        return msgspec.json.format(data, indent=2)
    except msgspec.DecodeError:  # NaN
        return encode(value, indent=2).encode()


def encode(value: Any, *, indent: int | None = None) -> str:
    """Return `value` as JSON as Python's reader takes it: NaN and infinities keep their names.

    Never raises: numbers of numpy become numbers, arrays lists, and anything else its text.
    """
    try:
        text = json.dumps(value, default=_plain, ensure_ascii=False, indent=indent)
        if not text.isascii():
            text.encode()  # half a character cannot be kept
    except (TypeError, ValueError, RecursionError, OverflowError):
        return json.dumps(_copied(value, 0), ensure_ascii=True, indent=indent)
    return text


def flat(values: Mapping[str, Any], *, without: str | None = None) -> Mapping[str, Any]:
    """Return values without nesting, as `flattened` does, and without the one of this name."""
    if without in values:
        values = {name: value for name, value in values.items() if name != without}
    if _LEAVES.issuperset(map(type, values.values())):
        return values
    return flattened(values)


def number_of(value: object) -> float | None:
    """Return a number as a float: Python's, numpy's, or an array's of one; None for others."""
    if isinstance(value, bool | str | bytes):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    found = _plain(value) if hasattr(value, "item") else None
    return number_of(found) if isinstance(found, int | float) else None


def _plain(value: Any) -> Any:
    """Return what stands for something that JSON does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    for method in ("item", "tolist"):  # numbers, arrays and tensors of any library
        try:
            found = getattr(value, method)()
        except Exception:  # noqa: BLE001, S112  # it is not one, or has more than one number
            continue
        if isinstance(found, str | int | float | list | None):
            return found
    return text_of(value)


def text_of(value: object) -> str:
    """Return the text of anything, also of what has none."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  # what cannot be told must not cost a row
        return f"<{type(value).__name__}>"


def _copied(value: Any, depth: int) -> Any:
    """Return a copy that JSON takes for sure, cut where it is too deep or goes in circles."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if depth > DEPTH_MAX:
        return "…"
    if isinstance(value, Mapping):
        return {text_of(name): _copied(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(inner, depth + 1) for inner in value]
    found = _plain(value)
    return found if isinstance(found, int | float | None) else _copied(found, depth + 1)


_encoder = msgspec.json.Encoder(enc_hook=_plain)

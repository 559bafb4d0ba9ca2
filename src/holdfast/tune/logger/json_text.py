"""Encodes results and configs as JSON; what JSON cannot express becomes text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.core.metric_history import flattened
from holdfast.core.plain_data import LEAVES, as_loose_json, stand_in


def encoded(value: Any) -> bytes:
    """Return `value` as `encode` does, in one line and as bytes; fast for plain data."""
    try:
        data = _encoder.encode(value)
    except Exception:  # noqa: BLE001  # `encode` handles everything
        return encode(value).encode()
    # It writes null for None, but also for NaN and infinities, which `encode` writes by name.
    return encode(value).encode() if b"null" in data else data


def encoded_lines(value: Any) -> bytes:
    """Return `value` as `encode` does, on several lines."""
    data = encoded(value)
    try:
        return msgspec.json.format(data, indent=2)
    except msgspec.DecodeError:  # NaN
        return encode(value, indent=2).encode()


def encode(value: Any, *, indent: int | None = None) -> str:
    """Return `value` as JSON that Python's reader takes: NaN and infinities keep their names.

    Never raises: numbers of numpy become numbers, arrays lists, and anything else its text.
    """
    try:
        text = json.dumps(value, default=stand_in, ensure_ascii=False, indent=indent)
        if not text.isascii():
            text.encode()  # raises for half a character
    except (TypeError, ValueError, RecursionError, OverflowError):
        return json.dumps(as_loose_json(value), ensure_ascii=True, indent=indent)
    return text


def flat(values: Mapping[str, Any], *, without: str | None = None) -> Mapping[str, Any]:
    """Return values without nesting, as `flattened` does, and without the name `without`."""
    if without in values:
        values = {name: value for name, value in values.items() if name != without}
    if LEAVES.issuperset(map(type, values.values())):
        return values
    return flattened(values)


def number_of(value: object) -> float | None:
    """Return a number of Python or numpy, or an array of one, as a float; None for others."""
    if isinstance(value, bool | str | bytes):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    number = stand_in(value) if hasattr(value, "item") else None
    return number_of(number) if isinstance(number, int | float) else None


_encoder = msgspec.json.Encoder(enc_hook=stand_in)

"""Metrics as they travel: plain numbers, strings, lists and dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.core.names import shown
from holdfast.errors import ConfigError

UNSENDABLE = (OverflowError, UnicodeEncodeError, RecursionError)


def plain_metrics(metrics: object) -> dict[str, Any]:
    """Return metrics without the types of array libraries; their scalars become Python's."""
    if not isinstance(metrics, Mapping):
        raise ConfigError(
            f"metrics={metrics!r}: metrics are a dictionary of names and values",
            hint="report({'loss': loss})",
        )
    try:
        return {str(name): _plain(str(name), value) for name, value in metrics.items()}
    except RecursionError:
        raise _endless() from None


def must_be_sendable(metrics: Mapping[str, Any]) -> None:
    """Raise if plain metrics hold what no message can: the error names it."""
    for name, value in metrics.items():
        try:
            msgspec.msgpack.encode({name: value})
        except OverflowError:
            raise ConfigError(
                f"metric {shown(name)} has a whole number of more than 64 bits",
                hint="report it as a float, or as text",
            ) from None
        except UnicodeEncodeError:
            raise ConfigError(
                f"metric {shown(name)} has text that is not valid Unicode",
                hint="text.encode(errors='replace').decode() is",
            ) from None
        except RecursionError:
            raise _endless() from None


def _endless() -> ConfigError:
    return ConfigError(
        "the metrics are nested too deeply, or hold themselves",
        hint="report numbers, strings, and lists and dictionaries of them",
    )


def _plain(name: str, value: Any) -> Any:
    if type(value) in _PLAIN:  # nearly always, and by far the soonest known
        return value
    if isinstance(value, bool | int | float | str):
        return _base(value)  # numpy.float64 is a float, and travels as one
    if isinstance(value, Mapping):
        return {str(key): _plain(f"{name}/{key}", inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(name, inner) for inner in value]
    if (hasattr(value, "item") and getattr(value, "size", 1) in (1, None)) or _is_scalar(value):
        return _plain(name, _read(name, value.item))
    if hasattr(value, "tolist"):
        return _plain(name, _read(name, value.tolist))
    raise ConfigError(
        f"metric {name!r} is a {type(value).__name__}, which is neither a number nor text",
        hint="report numbers, strings, lists and dictionaries of them; save the rest in a file",
    )


def _read(name: str, read: Callable[[], Any]) -> Any:
    """Return the numbers of an array; its device may be gone, or have none of them."""
    try:
        return read()
    except (RuntimeError, NotImplementedError) as error:
        raise ConfigError(
            f"metric {name!r} is a tensor that cannot be read: {error}",
            hint="report loss.item() while its device is there",
        ) from error


_PLAIN = {bool, int, float, str, type(None)}


def _base(value: Any) -> Any:
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def _is_scalar(value: Any) -> bool:
    """Whether an array or tensor holds exactly one number."""
    count = getattr(value, "numel", None)
    return callable(count) and count() == 1

"""Turns reported metrics into plain data: numbers, strings, lists and dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.core.names import shown
from holdfast.core.plain_data import Steps, Writer, array_data, is_flat, items, values_by
from holdfast.errors import ConfigError

UNSENDABLE = (OverflowError, UnicodeEncodeError, RecursionError)


def plain_metrics(metrics: object) -> dict[str, Any]:
    """Return metrics without the types of array libraries; their scalars become Python's."""
    if type(metrics) is dict:
        if is_flat(metrics):  # nearly always
            return metrics.copy()
    elif not isinstance(metrics, Mapping):
        raise ConfigError(
            f"metrics={metrics!r}: metrics are a dictionary of names and values",
            hint="report({'loss': loss})",
        )
    try:
        plain: dict[str, Any] = _write(metrics)
    except RecursionError:
        raise _endless() from None
    return plain


def must_be_sendable(metrics: Mapping[str, Any]) -> None:
    """Raise an error that names the metric if a message cannot hold plain metrics."""
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
                hint="report text.encode(errors='replace').decode()",
            ) from None
        except RecursionError:
            raise _endless() from None


def _endless() -> ConfigError:
    return ConfigError(
        "the metrics are nested too deeply, or hold themselves",
        hint="report numbers, strings, and lists and dictionaries of them",
    )


def _base(_writer: Writer, value: Any, _steps: Steps) -> Any:
    """Convert instances of subclasses, such as numpy.float64, to Python's own types."""
    return next(kind(value) for kind in (bool, int, float, str) if isinstance(value, kind))


def _numbers(writer: Writer, value: Any, steps: Steps) -> Any:
    """Convert an array to numbers; its device may be gone, or hold no data."""
    try:
        numbers = array_data(value)
    except (RuntimeError, NotImplementedError) as error:
        raise ConfigError(
            f"metric {_name(steps)!r} is a tensor that cannot be read: {error}",
            hint="report loss.item() while its device is there",
        ) from error
    if numbers is not value:
        return numbers if type(numbers) in writer.leaves else writer(numbers, steps)
    kind = type(value).__name__
    raise ConfigError(
        f"metric {_name(steps)!r} is of type {kind}, which is neither a number nor text",
        hint="report numbers, strings, lists and dictionaries of them; save the rest in a file",
    )


def _name(steps: Steps) -> str:
    return "/".join(step for step in steps if isinstance(step, str))


_write = Writer(
    forms={dict: values_by(str), list: items, tuple: items},
    families=[
        (bool | int | float | str, _base),
        (Mapping, values_by(str)),
        (list | tuple, items),
    ],
    otherwise=_numbers,
)

"""The functions that search spaces are written with, such as `uniform` and `choice`.

Every function checks its arguments when it is called, so that an error points at the line with the
mistake, before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.api.checks import is_number, is_whole, this_is
from holdfast.api.deprecated import warn_deprecated
from holdfast.errors import ConfigError
from holdfast.tune.errors import InvalidStudy
from holdfast.tune.search.domains import (
    Categorical,
    Domain,
    Float,
    Function,
    Grid,
    Integer,
    LogUniform,
    Normal,
    Quantized,
    Sampler,
    Uniform,
    is_multiple,
)

__all__ = [
    "Categorical",
    "Domain",
    "Float",
    "Function",
    "Grid",
    "Integer",
    "LogUniform",
    "Normal",
    "Quantized",
    "Sampler",
    "Uniform",
    "choice",
    "grid_search",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "sample_from",
    "uniform",
]

_NOT_GIVEN: Any = object()


def uniform(lower: float, upper: float) -> Float:
    """Return real numbers from `lower` to `upper`, all equally likely."""
    _check("uniform", lower, upper)
    return Float(lower, upper).uniform()


def quniform(lower: float, upper: float, q: float) -> Float:
    """Return the multiples of `q` from `lower` to `upper`, both included, all equally likely."""
    _check("quniform", lower, upper, q=q)
    return Float(lower, upper).uniform().quantized(q)


def loguniform(lower: float, upper: float, base: Any = _NOT_GIVEN) -> Float:
    """Return real numbers whose logarithms are equally likely, for values that span magnitudes."""
    _check("loguniform", lower, upper, log=True, base=base)
    return Float(lower, upper).loguniform()


def qloguniform(lower: float, upper: float, q: float, base: Any = _NOT_GIVEN) -> Float:
    """Return the multiples of `q` from `lower` to `upper`, both included, on a log scale."""
    _check("qloguniform", lower, upper, q=q, log=True, base=base)
    return Float(lower, upper).loguniform().quantized(q)


def randint(lower: int, upper: int) -> Integer:
    """Return whole numbers from `lower` up to, but not including, `upper`."""
    _check("randint", lower, upper, whole=True)
    return Integer(lower, upper).uniform()


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """Return the multiples of `q` from `lower` to `upper`; the bounds need not be multiples."""
    _check("qrandint", lower, upper, q=q, whole=True)
    return Integer(lower, upper).uniform().quantized(q)


def lograndint(lower: int, upper: int, base: Any = _NOT_GIVEN) -> Integer:
    """Return whole numbers from `lower` up to, but not including, `upper`, on a log scale."""
    _check("lograndint", lower, upper, whole=True, log=True, base=base)
    return Integer(lower, upper).loguniform()


def qlograndint(lower: int, upper: int, q: int, base: Any = _NOT_GIVEN) -> Integer:
    """Return the multiples of `q` like `qrandint`, on a log scale."""
    _check("qlograndint", lower, upper, q=q, whole=True, log=True, base=base)
    return Integer(lower, upper).loguniform().quantized(q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Float:
    """Return real numbers around `mean`, with the standard deviation `sd`."""
    _check_normal("randn", mean, sd)
    return Float(None, None).normal(mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Float:
    """Return multiples of `q` around `mean`, with the standard deviation `sd`."""
    _check_normal("qrandn", mean, sd, q)
    return Float(None, None).normal(mean, sd).quantized(q)


def choice(categories: Iterable[Any]) -> Categorical:
    """Return one of `categories`, all equally likely; they may be any values, even domains."""
    return Categorical(_options("choice", categories)).uniform()


def grid_search(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Return a grid: all `values` are tried, in combination with all values of other grids."""
    return {"grid_search": _options("grid_search", values)}


def sample_from(func: Callable[..., Any]) -> Function:
    """Return what `func()` or `func(config)` returns; config values that it reads are drawn first.

    What it draws from `random` or `numpy.random` is the same when the same trial is created again.
    """
    return Function(func)


def _options(name: str, values: Any) -> list[Any]:
    if isinstance(values, str | bytes | dict) or not isinstance(values, Iterable):
        raise InvalidStudy(
            f"{name}({values!r}): not a list of values, {this_is(values)}",
            hint=f"{name}([{values!r}])",
        )
    options = list(values)
    if not options:
        raise InvalidStudy(f"{name}({values!r}): no value to try", hint="pass at least one value")
    return options


def _check(
    name: str,
    lower: Any,
    upper: Any,
    *,
    q: Any = None,
    whole: bool = False,
    log: bool = False,
    base: Any = _NOT_GIVEN,
) -> None:
    if base is not _NOT_GIVEN:
        warn_deprecated(f"{name}(base=…) is ignored: the base of a logarithm changes no value")
    given = {"lower": lower, "upper": upper}
    if q is not None:
        given["q"] = q
    call = f"{name}({', '.join(repr(value) for value in given.values())})"
    _check_numbers(call, given, whole=whole)
    inclusive = q is not None or not whole
    if upper < lower or (upper == lower and not inclusive):
        raise ConfigError(
            f"{call}: nothing lies between {lower!r} and {upper!r}"
            + ("" if inclusive else ", because the upper bound is not included"),
            hint=f"{name}({upper!r}, {lower!r}, …)" if upper < lower else f"upper={upper + 1!r}",
        )
    if log and lower <= 0:
        raise ConfigError(
            f"{call}: lower={lower!r} has no logarithm; it must be above 0",
            hint="use a small lower bound, such as 1e-6, or a domain without a log scale",
        )
    if q is not None:
        _check_step(call, given, q, whole=whole)


def _check_numbers(call: str, given: dict[str, Any], *, whole: bool) -> None:
    for part, value in given.items():
        fits = is_whole(value) if whole else is_number(value) and abs(value) < float("inf")
        if fits:
            continue
        wanted = "a whole number" if whole else "a finite number"
        hint = None
        if isinstance(value, str):
            hint = "leave out the quotes; in YAML 1e-4 is a text, and 1.0e-4 is a number"
        raise ConfigError(f"{call}: {part}={value!r} is not {wanted}, {this_is(value)}", hint=hint)


def _check_step(call: str, given: dict[str, Any], q: Any, *, whole: bool) -> None:
    if q <= 0:
        raise ConfigError(f"{call}: q={q!r} must be above 0")
    for part in () if whole else ("lower", "upper"):
        if not is_multiple(given[part], q):
            raise ConfigError(
                f"{call}: {part}={given[part]!r} is not a multiple of q={q!r}",
                hint="use multiples as bounds, or a smaller q",
            )


def _check_normal(name: str, mean: Any, sd: Any, q: Any = None) -> None:
    given = {"mean": mean, "sd": sd} | ({} if q is None else {"q": q})
    call = f"{name}({', '.join(repr(value) for value in given.values())})"
    _check_numbers(call, given, whole=False)
    for part in ("sd", "q"):
        if part in given and given[part] <= 0:
            raise ConfigError(f"{call}: {part}={given[part]!r} must be above 0")

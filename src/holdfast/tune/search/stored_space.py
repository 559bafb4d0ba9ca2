"""Search spaces as data, so that a study can make new trials where its space was not given again.

Functions have no form as data: each is known by its place, as objects are. An expression is kept,
to be seen, but only what the script itself gives again is ever evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.core.config_data import (
    CONFIG_FORMS,
    CONFIG_READERS,
    Mark,
    config_from_data,
    config_refused,
    config_to_data,
    write_config,
)
from holdfast.core.plain_data import KeyStep, NotPlain, Reader, Steps, Writer
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
)
from holdfast.tune.search.objects import MissingFunction, Objects
from holdfast.tune.search.plain import name_of, step_of
from holdfast.tune.search.variant_generator import Expression, is_expression


def space_to_data(space: Any) -> Any:
    """Return a search space with marks, as `Objects.of` gives it, as data for JSON."""
    try:
        return _write(space)
    except NotPlain as problem:
        raise config_refused(problem, "param_space") from None


def space_from_data(data: Any, objects: Objects) -> Any:
    """Return the search space; functions are those of `objects` at the same places.

    What is missing is named by `objects.missing(space)`.
    """
    reader = Reader(
        {
            **CONFIG_READERS,
            "$grid": lambda reader, data: {"grid_search": reader(data["$grid"])},
            "$domain": lambda reader, data: _domain_from_data(data["$domain"], reader, objects),
        },
        finish=lambda made: (
            _given_expression(made["eval"], objects) if is_expression(made) else made
        ),
    )
    return reader(data)


def _space_dict(writer: Writer, space: dict[Any, Any], steps: Steps) -> Any:
    if space.keys() == {"grid_search"}:
        return {"$grid": _options(writer, space["grid_search"], steps)}
    inside = {key: writer(value, (*steps, step_of(key))) for key, value in space.items()}
    if all(type(key) is str and not key.startswith("$") for key in space):
        return inside
    return {"$dict": [[write_config(key, (*steps, KeyStep)), inside[key]] for key in space]}


def _options(writer: Writer, options: Iterable[Any], steps: Steps) -> list[Any]:
    return [writer(option, (*steps, (place,))) for place, option in enumerate(options)]


def _given_expression(text: str, objects: Objects) -> Function:
    """Return an expression that the script gives again; a record is no place to run code from."""
    for function in objects.functions.values():
        if isinstance(function, Expression) and function.expression == text:
            return function
    return MissingFunction(f"{{'eval': {text!r}}}")


def _domain_to_data(writer: Writer, domain: Domain, steps: Steps) -> dict[str, Any]:
    match domain:
        case Expression(expression=expression):
            return {"kind": "eval", "expression": expression}
        case Function():
            return {"kind": "function", "at": config_to_data(Mark(steps, "function"))}
        case Categorical(categories=categories):
            options = _options(writer, categories, steps)
            sampler = _sampler_to_data(domain.get_sampler())
            return {"kind": "choice", "options": options, "sampler": sampler}
        case Float() | Integer():
            return {
                "kind": "float" if isinstance(domain, Float) else "int",
                "lower": domain.lower,
                "upper": domain.upper,
                "sampler": _sampler_to_data(domain.get_sampler()),
            }
        case _:
            raise TypeError(f"{domain!r} is of no kind that can be stored")


def _domain_from_data(data: dict[str, Any], reader: Reader, objects: Objects) -> Domain:
    match data["kind"]:
        case "eval":
            return _given_expression(data["expression"], objects)
        case "function":
            mark = config_from_data(data["at"])
            return objects.functions.get(mark.steps) or MissingFunction(name_of(mark.steps))
        case "choice":
            found: Domain = Categorical(reader(data["options"]))
        case "float":
            found = Float(data["lower"], data["upper"])
        case _:
            found = Integer(data["lower"], data["upper"])
    found.set_sampler(_sampler_from_data(data["sampler"]))
    return found


def _sampler_to_data(sampler: Sampler) -> list[Any]:
    match sampler:
        case Quantized(inner, q):
            return ["quantized", _sampler_to_data(inner), q]
        case Normal(mean, sd):
            return ["normal", mean, sd]
        case LogUniform():
            return ["loguniform"]
        case Grid():
            return ["grid"]
        case _:
            return ["uniform"]


def _sampler_from_data(data: list[Any]) -> Sampler:
    match data:
        case ["quantized", inner, q]:
            return Quantized(_sampler_from_data(inner), q)
        case ["normal", mean, sd]:
            return Normal(mean, sd)
        case ["loguniform"]:
            return LogUniform()
        case ["grid"]:
            return Grid()
        case _:
            return Uniform()


_write = Writer(
    forms={**CONFIG_FORMS, dict: _space_dict},
    families=[
        (Domain, lambda writer, domain, steps: {"$domain": _domain_to_data(writer, domain, steps)}),
        (dict, _space_dict),
    ],
    otherwise=lambda _writer, value, steps: write_config(value, steps),
)

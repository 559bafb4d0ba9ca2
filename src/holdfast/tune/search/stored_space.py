"""Converts search spaces to data and back, so that a resumed study can create new trials.

Functions cannot be stored: like objects, they are found by their place in the `param_space` that is
passed again. An expression is stored so that it can be shown, but evaluated only if it is passed
again.
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
from holdfast.tune.search import domains
from holdfast.tune.search.domains import Categorical, Domain, Float, Function, Integer, Sampler
from holdfast.tune.search.objects import MissingFunction, Objects
from holdfast.tune.search.plain import name_of, step_of
from holdfast.tune.search.variant_generator import Expression, is_expression


def space_to_data(space: Any) -> Any:
    """Return a search space with marks, as `Objects.of` returns it, as data for JSON."""
    try:
        return _write(space)
    except NotPlain as problem:
        raise config_refused(problem, "param_space") from None


def space_from_data(data: Any, objects: Objects) -> Any:
    """Return the search space, with the functions of `objects` at the same places.

    `objects.missing(space)` names those that are missing.
    """
    reader = Reader(
        {
            **CONFIG_READERS,
            "$grid": lambda reader, data: {"grid_search": reader(data["$grid"])},
            "$domain": lambda reader, data: _domain_from_data(data["$domain"], reader, objects),
        },
        finish=lambda value: (
            _given_expression(value["eval"], objects) if is_expression(value) else value
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
    """Return an expression that the script passed again; code from a record is never run."""
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
            raise TypeError(f"{domain!r} cannot be stored: its kind is unknown")


def _domain_from_data(data: dict[str, Any], reader: Reader, objects: Objects) -> Domain:
    match data["kind"]:
        case "eval":
            return _given_expression(data["expression"], objects)
        case "function":
            mark = config_from_data(data["at"])
            return objects.functions.get(mark.steps) or MissingFunction(name_of(mark.steps))
        case "choice":
            domain: Domain = Categorical(reader(data["options"]))
        case "float":
            domain = Float(data["lower"], data["upper"])
        case _:
            domain = Integer(data["lower"], data["upper"])
    domain.set_sampler(_sampler_from_data(data["sampler"]))
    return domain


def _sampler_to_data(sampler: Sampler) -> list[Any]:
    match sampler:
        case domains.Quantized(inner, q):
            return ["quantized", _sampler_to_data(inner), q]
        case domains.Normal(mean, sd):
            return ["normal", mean, sd]
        case domains.LogUniform():
            return ["loguniform"]
        case domains.Grid():
            return ["grid"]
        case _:
            return ["uniform"]


def _sampler_from_data(data: list[Any]) -> Sampler:
    match data:
        case ["quantized", inner, q]:
            return domains.Quantized(_sampler_from_data(inner), q)
        case ["normal", mean, sd]:
            return domains.Normal(mean, sd)
        case ["loguniform"]:
            return domains.LogUniform()
        case ["grid"]:
            return domains.Grid()
        case _:
            return domains.Uniform()


_write = Writer(
    forms={**CONFIG_FORMS, dict: _space_dict},
    families=[
        (Domain, lambda writer, domain, steps: {"$domain": _domain_to_data(writer, domain, steps)}),
        (dict, _space_dict),
    ],
    otherwise=lambda _writer, value, steps: write_config(value, steps),
)

"""Search spaces as data, so that a study can make new trials where its space was not given again.

Functions have no form as data: each is known by its place, as objects are. An expression is kept,
to be seen, but only what the script itself gives again is ever evaluated.
"""

from __future__ import annotations

from typing import Any

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
from holdfast.tune.search.plain import Mark, config_from_data, config_to_data, name_of, step_of
from holdfast.tune.search.variant_generator import Expression, is_expression


def space_to_data(space: Any, steps: tuple[Any, ...] = ()) -> Any:
    """Return a search space with marks, as `Objects.of` gives it, as data for JSON."""
    if isinstance(space, Domain):
        return {"$domain": _domain_to_data(space, steps)}
    if isinstance(space, dict):
        if space.keys() == {"grid_search"}:
            options = enumerate(space["grid_search"])
            return {"$grid": [space_to_data(value, (*steps, (at,))) for at, value in options]}
        if all(type(key) is str and not key.startswith("$") for key in space):
            return {
                key: space_to_data(value, (*steps, step_of(key))) for key, value in space.items()
            }
        pairs = [
            [config_to_data(key), space_to_data(value, (*steps, step_of(key)))]
            for key, value in space.items()
        ]
        return {"$dict": pairs}
    if type(space) in (list, tuple):
        items = [space_to_data(value, (*steps, at)) for at, value in enumerate(space)]
        return items if isinstance(space, list) else {"$tuple": items}
    return config_to_data(space, name_of(steps) or "param_space")


def space_from_data(data: Any, objects: Objects) -> Any:
    """Return the search space; functions are those of `objects` at the same places.

    What is missing is named by `objects.missing(space)`.
    """
    if isinstance(data, list):
        return [space_from_data(item, objects) for item in data]
    if not isinstance(data, dict):
        return data
    if "$domain" in data:
        return _domain_from_data(data["$domain"], objects)
    if "$grid" in data:
        return {"grid_search": space_from_data(data["$grid"], objects)}
    if "$tuple" in data:
        return tuple(space_from_data(data["$tuple"], objects))
    if "$mark" in data or "$path" in data:
        return config_from_data(data)
    pairs = data["$dict"] if "$dict" in data else data.items()
    found = {config_from_data(k): space_from_data(v, objects) for k, v in pairs}
    if is_expression(found):
        return _given_expression(found["eval"], objects)
    return found


def _given_expression(text: str, objects: Objects) -> Function:
    """Return an expression that the script gives again; a record is no place to run code from."""
    for function in objects.functions.values():
        if isinstance(function, Expression) and function.expression == text:
            return function
    return MissingFunction(f"{{'eval': {text!r}}}")


def _domain_to_data(domain: Domain, steps: tuple[Any, ...]) -> dict[str, Any]:
    match domain:
        case Expression(expression=expression):
            return {"kind": "eval", "expression": expression}
        case Function():
            return {"kind": "function", "at": config_to_data(Mark(steps, "function"))}
        case Categorical(categories=categories):
            options = [space_to_data(one, (*steps, (at,))) for at, one in enumerate(categories)]
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


def _domain_from_data(data: dict[str, Any], objects: Objects) -> Domain:
    match data["kind"]:
        case "eval":
            return _given_expression(data["expression"], objects)
        case "function":
            mark = config_from_data(data["at"])
            return objects.functions.get(mark.steps) or MissingFunction(name_of(mark.steps))
        case "choice":
            found: Domain = Categorical(space_from_data(data["options"], objects))
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

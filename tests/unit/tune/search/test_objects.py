from __future__ import annotations

import enum
import json
import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from holdfast.core.config_data import Mark, config_from_data, config_to_data
from holdfast.errors import ConfigError
from holdfast.tune.search import BasicVariantGenerator, SearchPlan
from holdfast.tune.search.objects import Objects, keys_of, must_have_same_keys
from holdfast.tune.search.sample import (
    choice,
    grid_search,
    loguniform,
    qrandn,
    sample_from,
    uniform,
)
from holdfast.tune.search.stored_space import space_from_data, space_to_data


@dataclass(eq=False)
class Model:
    """Something that cannot be written down."""

    model_id: int


class Colour(enum.StrEnum):
    RED = "red"


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def configs(plan: SearchPlan) -> list[dict[str, Any]]:
    configs = []
    while not isinstance(proposal := plan.next(), str):
        assert proposal is not None
        configs.append(proposal.config)
    return configs


@pytest.mark.req("U-036")
def test_every_trial_of_a_grid_over_objects_gets_its_own() -> None:
    models = [Model(0), Model(1), Model(2)]
    plan = SearchPlan(None, {"model": grid_search(models)})

    got = [plan.resolve(config)["model"] for config in configs(plan)]

    assert got == models


@pytest.mark.req("U-034", "U-037")
def test_after_a_restore_a_trial_has_the_new_object_of_its_option_and_its_old_numbers() -> None:
    def space(start: int) -> dict[str, Any]:
        return {
            "model": choice([Model(start), Model(start + 1)]),
            "lr": loguniform(1e-4, 1),
            "fixed": Model(start + 9),
        }

    plan = SearchPlan(BasicVariantGenerator(random_state=3), space(0), num_samples=6)
    before = configs(plan)
    stored = through_json([config_to_data(config) for config in before])
    _, new = Objects.of(space(100))

    for old, data in zip(before, stored, strict=True):
        was, now = plan.resolve(old), new.resolve(config_from_data(data))
        assert now["model"].model_id == was["model"].model_id + 100
        assert now["fixed"].model_id == was["fixed"].model_id + 100
        assert now["lr"] == was["lr"]


@pytest.mark.req("U-032", "U-033")
def test_objects_that_were_not_given_again_are_named_by_their_path() -> None:
    space = {"datasets": {"train": grid_search([Model(1), Model(2)])}, "ref": Model(3), "lr": 0.1}
    plan = SearchPlan(None, space)
    config = config_from_data(through_json(config_to_data(configs(plan)[1])))
    _, nothing = Objects.of({})
    _, half = Objects.of({"datasets": {"train": grid_search([Model(4), Model(5)])}})

    assert nothing.missing(config) == ["datasets/train", "ref"]
    assert half.missing(config) == ["ref"]
    with pytest.raises(ConfigError, match="datasets/train, ref") as caught:
        nothing.resolve(config)
    assert "param_space" in str(caught.value)


@pytest.mark.req("U-038")
def test_nested_datasets_round_trip() -> None:
    data = pytest.importorskip("holdfast.data")
    old, new = ([data.from_items([{"x": n + at}]) for at in range(2)] for n in (0, 10))
    plan = SearchPlan(None, {"datasets": {"train": grid_search(old), "epochs": 3}})
    config = config_from_data(through_json(config_to_data(configs(plan)[1])))

    again = Objects.of({"datasets": {"train": grid_search(new), "epochs": 3}})[1].resolve(config)

    assert again["datasets"]["train"] is new[1]
    assert again["datasets"]["epochs"] == 3


def test_a_place_that_is_plain_data_now_is_resolved_to_it() -> None:
    plan = SearchPlan(None, {"model": grid_search([Model(1), Model(2)])})
    config = configs(plan)[1]

    assert Objects.of({"model": grid_search(["a.pt", "b.pt"])})[1].resolve(config) == {
        "model": "b.pt"
    }


@pytest.mark.req("U-008")
def test_a_space_with_other_keys_is_refused_with_both_sides() -> None:
    stored = keys_of({"a": uniform(0, 1), "b": {"c": grid_search([1]), "d": 1}})
    assert stored == ["a", "b/c", "b/d"]

    must_have_same_keys(stored, {"b": {"d": 5, "c": 2}, "a": choice([1, 2])})
    with pytest.raises(ValueError, match="b/d") as caught:
        must_have_same_keys(stored, {"a": 1, "b": {"c": 1}, "e": 1})

    assert "['a', 'b/c', 'e']" in str(caught.value)
    assert "['a', 'b/c', 'b/d']" in str(caught.value)


@pytest.mark.parametrize(
    "config",
    [
        {"a": (1, [2, (3,)]), "b": {1: "x", None: (), (1, 2): 3}, "c": {}},
        {"$mark": [1], "x": {"$tuple": [1]}, "y": {"$dict": 1}},
        {"nan": [float("inf"), -0.0], "big": 10**30, "t": True},
        {"m": Mark(("a", (1,), "b", 2), "Model")},
        {"p": Path("a/b"), "q": [(PurePosixPath("/"), Path("$x"))], "r": {Path("k"): 1}},
        {"$path": "a", "kind": "Path"},
    ],
    ids=["tuples and keys", "our own names", "numbers", "marks", "paths", "our path's name"],
)
def test_a_config_comes_back_from_json_as_it_was(config: Any) -> None:
    again = config_from_data(through_json(config_to_data(config)))

    assert again == config
    assert repr(again) == repr(config)


def test_paths_are_options_and_values_of_a_space_and_need_no_objects_to_come_back() -> None:
    space = {
        "data": choice([Path("a"), Path("b")]),
        "where": grid_search([(Path("x"), 1), [Path("y")]]),
        "fixed": {"deep": [Path("z")]},
    }
    plan = SearchPlan(None, space)

    stored = space_from_data(through_json(plan.space_data), Objects())

    assert stored == space
    assert plan.objects.marks == []
    assert [config["where"] for config in configs(plan)] == [(Path("x"), 1), [Path("y")]]


def test_a_path_that_is_no_text_is_an_object_and_refused_where_it_must_be_kept() -> None:
    odd = Path(os.fsdecode(b"caf\xe9"))

    _, objects = Objects.of({"a": odd})

    assert [mark.steps for mark in objects.marks] == [("a",)]
    with pytest.raises(
        ConfigError, match=r"config/a cannot be kept .* a path whose name is not text"
    ):
        config_to_data({"a": odd})


def test_what_cannot_be_written_down_is_refused_with_its_path() -> None:
    with pytest.raises(ConfigError, match="config/a/0/b") as caught:
        config_to_data({"a": [{"b": Model(1)}]})
    assert "Model" in str(caught.value)
    with pytest.raises(ConfigError, match="a key of config"):
        config_to_data({Colour.RED: 1})


def test_what_is_no_plain_data_becomes_a_mark_and_what_nearly_is_becomes_plain() -> None:
    numpy = pytest.importorskip("numpy")
    space, objects = Objects.of(
        {
            "n": numpy.int64(3),
            "f": numpy.float64(0.5),
            "array": numpy.zeros(2),
            "colour": Colour.RED,
            "call": len,
            "o": OrderedDict(a=1),
        }
    )

    assert (space["n"], type(space["n"])) == (3, int)
    assert type(space["f"]) is float
    assert [mark.steps for mark in objects.marks] == [("array",), ("colour",), ("call",)]
    assert objects.resolve(space)["colour"] is Colour.RED
    assert space["o"] == {"a": 1}


def test_points_may_name_the_objects_of_the_space() -> None:
    models = [Model(0), Model(1)]
    searcher = BasicVariantGenerator(points_to_evaluate=[{"model": models[1]}])
    plan = SearchPlan(searcher, {"model": choice(models), "x": uniform(0, 1)})

    assert plan.resolve(configs(plan)[0])["model"] is models[1]
    with pytest.raises(ConfigError, match="not one of the objects"):
        SearchPlan(
            BasicVariantGenerator(points_to_evaluate=[{"model": Model(1)}]),
            {"model": choice(models)},
        )


def test_a_space_comes_back_from_json_and_gives_the_same_variants() -> None:
    def space() -> dict[Any, Any]:
        return {
            "x": loguniform(1e-3, 1),
            "n": {"q": qrandn(0, 1, 0.5), "t": (choice([1, (2, 3)]), 4)},
            "g": grid_search([Model(1), {"deep": uniform(0, 1)}]),
            "f": sample_from(lambda config: config["x"] * 2),
            "e": {"eval": "spec.config.x + 1"},
            3: uniform(1, 2),
        }

    plain, objects = Objects.of(space())
    data = through_json(space_to_data(plain))
    again = space_from_data(data, objects)

    def variants(of: Any) -> Any:
        generator = BasicVariantGenerator(random_state=1)
        generator.set_search_properties(None, None, of)
        return [generator.suggest("t") for _ in range(6)]

    assert variants(again) == variants(plain)
    assert Objects.of({})[1].missing(space_from_data(data, Objects())) == ["g[0]", "f", "e"]


@pytest.mark.req("U-034", "U-037")
def test_a_plan_made_from_a_stored_space_makes_the_same_trials_with_new_objects() -> None:
    def space(start: int) -> tuple[list[Model], dict[str, Any]]:
        models = [Model(start), Model(start + 1)]
        return models, {"model": choice(models), "x": uniform(0, 1)}

    old_models, old = space(0)
    points = [{"model": old_models[1]}]
    first = SearchPlan(BasicVariantGenerator(points_to_evaluate=points), old, num_samples=8)
    start, stored = through_json(first.get_state()), through_json(first.space_data)
    new_models, new = space(10)
    _, objects = Objects.of(new)
    second = SearchPlan(
        BasicVariantGenerator(points_to_evaluate=[{"model": new_models[1]}]),
        space_from_data(stored, objects),
        num_samples=8,
        objects=objects,
    )
    second.set_state(start)
    without = SearchPlan(None, space_from_data(stored, Objects()), num_samples=8)
    without.set_state(start)

    made, again = configs(first), configs(second)
    assert made == again
    for config, restored in zip(made, again, strict=True):
        ids = first.resolve(config)["model"].model_id, second.resolve(restored)["model"].model_id
        assert ids[1] == ids[0] + 10
    assert without.missing(configs(without)[0]) == ["model"]
    assert without.missing(without.space) == ["model[0]", "model[1]"]

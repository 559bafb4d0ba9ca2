from __future__ import annotations

import json
import random
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.tune.errors import TuneError
from holdfast.tune.search import BasicVariantGenerator, RecursiveDependencyError, SearchPlan
from holdfast.tune.search.sample import (
    choice,
    grid_search,
    loguniform,
    randint,
    sample_from,
    uniform,
)


def variants(space: dict[str, Any], num_samples: int = 1, **arguments: Any) -> list[dict[str, Any]]:
    generator = BasicVariantGenerator(**{"random_state": 1, **arguments})
    generator.set_search_properties(None, None, space)
    count = generator.count_trials(num_samples)
    assert count is not None
    return [generator.suggest(f"t{number}") for number in range(count)]


def test_the_first_path_in_order_varies_fastest() -> None:
    space = {
        "b": grid_search([1, 2]),
        "a": {"z": grid_search(["x", "y"]), "c": grid_search([5, 6])},
    }

    configs = [(config["a"]["c"], config["a"]["z"], config["b"]) for config in variants(space)]

    assert configs == [
        (5, "x", 1), (6, "x", 1), (5, "y", 1), (6, "y", 1),
        (5, "x", 2), (6, "x", 2), (5, "y", 2), (6, "y", 2),
    ]  # fmt: skip


def test_every_sample_goes_through_the_whole_grid_with_new_draws() -> None:
    configs = variants({"a": grid_search([1, 2]), "x": uniform(0, 1)}, num_samples=3)

    assert [config["a"] for config in configs] == [1, 2, 1, 2, 1, 2]
    assert len({config["x"] for config in configs}) == 6


def test_a_constant_grid_search_draws_once_per_sample() -> None:
    configs = variants(
        {"a": grid_search([1, 2]), "x": uniform(0, 1)}, num_samples=2, constant_grid_search=True
    )

    assert configs[0]["x"] == configs[1]["x"] != configs[2]["x"] == configs[3]["x"]


def test_twenty_five_samples_and_twenty_five_more_are_the_same_fifty() -> None:
    space = {"a": grid_search([1, 2]), "x": loguniform(1e-4, 1), "k": choice(["p", "q"])}

    generator = BasicVariantGenerator(random_state=1)
    generator.set_search_properties(None, None, space)
    first = [generator.suggest("t") for _ in range(50)]
    resumed = BasicVariantGenerator()
    resumed.set_search_properties(None, None, space)
    resumed.set_state(json.loads(json.dumps(generator.get_state())))
    more = [resumed.suggest("t") for _ in range(50)]

    assert first + more == variants(space, 50)


def test_a_parameter_more_changes_no_other() -> None:
    first = variants({"x": uniform(0, 1)}, 5)
    other = variants({"w": uniform(0, 1), "x": uniform(0, 1)}, 5)

    assert [config["x"] for config in first] == [config["x"] for config in other]


def test_a_grid_of_a_trillion_is_lazy_and_can_be_gone_on_with() -> None:
    space = {f"p{at:02d}": grid_search(list(range(10))) for at in range(12)}
    generator = BasicVariantGenerator(random_state=1)
    generator.set_search_properties(None, None, space)
    assert generator.count_trials(1) == 10**12

    generator.set_state({"seed": 1, "made": 123_456_789_012})
    config = generator.suggest("t")

    assert "".join(str(config[f"p{at:02d}"]) for at in reversed(range(12))) == "123456789012"
    assert len(json.dumps(generator.get_state())) < 100


def test_lists_tuples_and_nested_options_are_searched() -> None:
    space = {
        "layers": [{"units": grid_search([8, 16])}, 4],
        "pair": (choice([1]), "x"),
        "opt": choice([{"lr": uniform(0, 1), "name": "sgd"}]),
        "kind": grid_search([{"depth": grid_search([1, 2])}, "flat"]),
    }
    configs = variants(space)

    assert len(configs) == 6
    assert {json.dumps(config["kind"]) for config in configs} == {
        '{"depth": 1}',
        '{"depth": 2}',
        '"flat"',
    }
    assert configs[0]["pair"] == (1, "x")
    assert 0 <= configs[0]["opt"]["lr"] <= 1
    assert [config["layers"][0]["units"] for config in configs].count(8) == 3


@pytest.mark.parametrize(
    "function",
    [
        lambda config: config["a"] * 10,
        lambda spec: spec.config.a * 10,
        lambda spec: spec["config"]["a"] * 10,
        lambda spec: spec.get("a", 0) * 10,
    ],
    ids=["by key", "by attribute", "by both", "by get"],
)
def test_a_function_reads_what_was_drawn(function: Any) -> None:
    configs = variants({"a": grid_search([1, 2]), "z": sample_from(function)})

    assert [config["z"] for config in configs] == [10, 20]


def test_functions_wait_for_each_other_in_any_order() -> None:
    space = {
        "a": sample_from(lambda config: config["b"] + 1),
        "b": sample_from(lambda config: config["deep"]["c"] + 1),
        "deep": {"c": sample_from(lambda: 5)},
        "e": {"eval": "spec.config.a * 2"},
    }

    assert variants(space) == [{"a": 7, "b": 6, "deep": {"c": 5}, "e": 14}]


def test_functions_that_wait_in_a_circle_are_named() -> None:
    space = {
        "a": sample_from(lambda config: config["b"]),
        "b": sample_from(lambda config: config["a"]),
    }

    with pytest.raises(RecursiveDependencyError, match="a needs b needs a"):
        variants(space)


def test_a_function_that_draws_returns_the_same_again_and_leaves_other_draws_alone() -> None:
    numpy = pytest.importorskip("numpy")
    space = {
        "x": sample_from(lambda _: random.random()),
        "y": sample_from(lambda: float(numpy.random.uniform())),
    }
    random.seed(4)
    expected = random.random()
    random.seed(4)

    first, second = variants(space, 2), variants(space, 2)

    assert random.random() == expected
    assert first == second
    assert first[0] != first[1]


def test_what_a_function_returns_is_searched_too() -> None:
    space = {"x": sample_from(lambda: {"lr": uniform(0, 1), "n": [randint(0, 3)]})}
    config = variants(space)[0]

    assert 0 <= config["x"]["lr"] <= 1
    assert config["x"]["n"][0] in (0, 1, 2)


def test_an_error_in_a_function_names_the_parameter() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        variants({"x": sample_from(lambda: 1 / 0)})

    assert "'x'" in caught.value.__notes__[0]


def test_a_point_takes_the_place_of_a_sample_and_the_rest_is_drawn() -> None:
    space = {"a": grid_search([1, 2]), "x": uniform(0, 1), "k": 3}
    points = [{"a": 2, "x": 0.5}, {"x": 0.25}]

    configs = variants(space, 3, points_to_evaluate=points)

    assert [(config["a"], config["x"]) for config in configs[:3]] == [
        (2, 0.5),
        (1, 0.25),
        (2, 0.25),
    ]
    assert [config["a"] for config in configs[3:]] == [1, 2]
    assert {config["k"] for config in configs} == {3}


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"x": 2.0}, "is not in the search space"),
        ({"k": 4}, "is not in the search space"),
        ({"unknown": 4}, "not in the search space"),
    ],
)
def test_a_point_that_the_space_cannot_give_is_refused(point: Any, words: str) -> None:
    space = {"a": grid_search([1, 2]), "x": uniform(0, 1), "k": 3}

    with pytest.raises(ConfigError, match=words):
        variants(space, points_to_evaluate=[point])


def test_a_point_beside_the_options_is_tried_as_it_is_with_a_warning() -> None:
    space = {"a": grid_search([1, 2]), "b": {"c": choice(["x", "y"])}, "d": uniform(0, 1)}
    points = [{"a": 3, "b": {"c": "z"}}, {"b": {"c": {"deep": [1]}}}]

    with pytest.warns(UserWarning, match="is not an option") as warned:
        configs = variants(space, 2, points_to_evaluate=points)

    assert [(config["a"], config["b"]["c"]) for config in configs] == [
        (3, "z"),
        (1, {"deep": [1]}),
        (2, {"deep": [1]}),
    ]
    assert "a=3 is not an option of the search space (1, 2)" in str(warned[0].message)


def test_points_beyond_the_number_of_samples_cause_a_warning() -> None:
    space = {"a": uniform(0, 1)}
    points = [{"a": number / 10} for number in range(3)]

    with pytest.warns(UserWarning, match="only the first 1 are tried; num_samples=3 tries all"):
        plan = SearchPlan(BasicVariantGenerator(points_to_evaluate=points), space)

    plan.extend(3)
    assert [plan.next().config["a"] for _ in range(3)] == [0.0, 0.1, 0.2]  # type: ignore[union-attr]
    for num_samples in (3, -1):
        SearchPlan(BasicVariantGenerator(points_to_evaluate=points), space, num_samples=num_samples)


def test_grids_that_make_no_sense_are_refused() -> None:
    with pytest.raises(TuneError, match="not a list"):
        variants({"a": {"grid_search": 5}})
    with pytest.raises(TuneError, match="no value"):
        variants({"a": {"grid_search": []}})
    with pytest.raises(ConfigError, match="inside an option of choice"):
        variants({"a": choice([grid_search([1, 2]), 3])})
    with pytest.raises(ConfigError, match="returned a grid_search"):
        variants({"a": sample_from(lambda: grid_search([1, 2]))})


def test_a_trial_cannot_change_the_config_of_another() -> None:
    space = {"layers": [1, 2], "a": grid_search([{"p": [1]}, {"p": [2]}])}
    first = variants(space)
    first[0]["layers"].append(3)
    first[0]["a"]["p"].append(9)

    assert space["layers"] == [1, 2]
    assert variants(space)[0] == {"layers": [1, 2], "a": {"p": [1]}}

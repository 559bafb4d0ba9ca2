"""How population based training changes a config that it copies."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from holdfast.testing.fake_study import FakeStudy
from holdfast.tune.errors import TuneError
from holdfast.tune.search.sample import choice, uniform
from tests.unit.tune.schedulers.test_pbt import meet, pbt, population


def mutated(mutation: Any, value: Any, times: int = 400, **kwargs: Any) -> Counter[Any]:
    """Return what becomes of a value, how often."""
    found: Counter[Any] = Counter()
    for seed in range(times):
        scheduler = pbt(hyperparam_mutations={"x": mutation}, synch=True, seed=seed, **kwargs)
        study = FakeStudy(scheduler, slots=2)
        study.add({"x": value})
        study.add({"x": value})
        study.fill()
        meet(study, 2)
        found[study.trials[0].config["x"]] += 1
    return found


def test_a_number_is_multiplied_by_one_of_the_factors() -> None:
    found = mutated(uniform(5, 6), 10.0, resample_probability=0)

    assert set(found) == {12.0, 8.0}
    assert 160 < found[12.0] < 240


def test_a_whole_number_stays_whole() -> None:
    found = mutated(lambda: 1, 7, resample_probability=0)

    assert set(found) == {8, 5}  # 8.4 and 5.6, cut off
    assert {type(value) for value in found} == {int}


def test_the_factors_can_be_chosen() -> None:
    assert set(
        mutated(uniform(5, 6), 1.0, 50, resample_probability=0, perturbation_factors=[3.0])
    ) == {3.0}


def test_a_value_of_a_list_moves_by_one_place() -> None:
    found = mutated(["a", "b", "c", "d"], "b", resample_probability=0)
    assert set(found) == {"a", "c"}
    assert 160 < found["a"] < 240

    assert set(mutated(["a", "b", "c"], "c", resample_probability=0)) == {"b", "c"}
    assert set(mutated(choice([1, 2, 3]), 1, resample_probability=0)) == {1, 2}


def test_a_value_that_is_not_in_the_list_is_drawn() -> None:
    assert set(mutated(["a", "b"], "z", resample_probability=0)) == {"a", "b"}


def test_values_are_drawn_anew_as_often_as_said() -> None:
    found = mutated(["a", "b", "c", "d"], "b", resample_probability=0.25)

    # A quarter of the time one of four, else a neighbour: d only by a draw, 1/16 of the time.
    assert 10 < found["d"] < 45
    assert 10 < found["b"] < 45
    assert set(mutated(uniform(5, 6), 1.0, 50, resample_probability=1)).isdisjoint({1.2, 0.8})


def test_what_cannot_be_multiplied_is_drawn() -> None:
    assert set(mutated(lambda: "new", "old", 20, resample_probability=0)) == {"new"}
    assert set(mutated(lambda: 5, True, 20, resample_probability=0)) == {5}


def test_functions_of_users_draw_the_same_again_and_leave_no_trace() -> None:
    def drawn() -> tuple[Any, ...]:
        mutations = {"a": lambda: random.uniform(0, 1), "b": np.random.rand}
        study = FakeStudy(pbt(hyperparam_mutations=mutations, seed=5))
        return tuple(study.add({}).config.values())

    random.seed(1)
    expected = random.random()
    random.seed(1)
    first, second = drawn(), drawn()

    assert first == second
    assert all(type(value) is float for value in first)
    assert random.random() == expected


def test_a_function_of_the_user_has_the_last_word() -> None:
    def explore(config: dict[str, Any]) -> dict[str, Any]:
        return {**config, "lr": -1.0}

    study = population(pbt(synch=True, custom_explore_fn=explore), 4)
    meet(study, 2)

    assert study.trials[0].config["lr"] == -1.0


def test_a_function_that_returns_nothing_is_told_so() -> None:
    study = population(pbt(synch=True, custom_explore_fn=lambda config: None), 4)
    with pytest.raises(TuneError, match="custom_explore_fn returned None"):
        meet(study, 2)

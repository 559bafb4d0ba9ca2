"""How population based training changes a config that it copies."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.testing.fake_study import FakeStudy
from holdfast.tune.errors import TuneError
from holdfast.tune.schedulers.explore import perturbed
from holdfast.tune.search.domains import Float, Integer, Quantized, is_multiple
from holdfast.tune.search.sample import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    qrandint,
    quniform,
    randint,
    sample_from,
    uniform,
)
from tests.unit.tune.schedulers.test_pbt import meet, pbt, population


def mutated(mutation: Any, value: Any, times: int = 400, **kwargs: Any) -> Counter[Any]:
    """Return what becomes of a value, how often."""
    counts: Counter[Any] = Counter()
    for seed in range(times):
        scheduler = pbt(hyperparam_mutations={"x": mutation}, synch=True, seed=seed, **kwargs)
        study = FakeStudy(scheduler, slots=2)
        study.add({"x": value})
        study.add({"x": value})
        study.fill()
        meet(study, 2)
        counts[study.trials[0].config["x"]] += 1
    return counts


def test_a_number_is_multiplied_by_one_of_the_factors() -> None:
    counts = mutated(uniform(5, 16), 10.0, resample_probability=0)

    assert set(counts) == {12.0, 8.0}
    assert 160 < counts[12.0] < 240


def test_a_whole_number_stays_whole() -> None:
    counts = mutated(lambda: 1, 7, resample_probability=0)

    assert set(counts) == {8, 6}  # 8.4 and 5.6
    assert {type(value) for value in counts} == {int}


WALKED = [  # where, from, and the highest that it can come to
    (randint(1, 65), 4, 64),
    (randint(1, 65), 1, 64),
    (randint(0, 9), 0, 8),
    (lograndint(1, 1000), 2, 999),
    (qrandint(8, 64, 8), 8, 64),
    (qrandint(0, 50, 5), 5, 50),
    (quniform(0.5, 4.0, 0.25), 0.75, 4.0),
    (uniform(0.0, 1.0), 0.2, 1.0),
    (loguniform(1e-5, 1e-1), 1e-4, 1e-1),
    (randint(-5, 6), 1, 5),
]


@pytest.mark.parametrize(("domain", "start", "highest"), WALKED)
def test_no_number_leaves_its_domain_and_those_that_start_low_can_grow(
    domain: Float | Integer, start: float, highest: float
) -> None:
    """Fifty walks of forty steps each."""
    ends = []
    for seed in range(50):
        config: dict[str, Any] = {"x": start}
        walked = []
        for step in range(40):
            draw = random.Random(f"{seed}:{step}")
            config = perturbed(
                config, {"x": domain}, draw, resample_probability=0.0, factors=(1.2, 0.8)
            )
            walked.append(config["x"])
            assert domain.is_valid(config["x"])
            assert type(config["x"]) is (int if isinstance(domain, Integer) else float)
            if isinstance(domain.sampler, Quantized):
                assert is_multiple(config["x"], domain.sampler.q)
        ends.append(max(walked))

    assert sum(end > start for end in ends) >= 25
    assert max(ends) <= highest


@pytest.mark.parametrize(
    ("value", "factor", "wanted"),
    [(1, 1.2, 2), (2, 1.2, 3), (2, 0.8, 1), (1, 0.8, 1), (10, 1.2, 12), (10, 0.8, 8), (-1, 1.2, -2),
     (-2, 0.8, -1), (-1, 0.5, -1), (0, 1.2, 1), (0, 0.8, 0), (3, 1.0, 3), (np.int64(4), 1.2, 5),
     (10**400, 0.5, 5 * 10**399)],
)  # fmt: skip
def test_a_whole_number_without_a_domain_moves_by_one_at_least_and_never_past_zero(
    value: int, factor: float, wanted: int
) -> None:
    config = perturbed(
        {"x": value},
        {"x": lambda: 99},
        random.Random(0),
        resample_probability=0.0,
        factors=[factor],
    )

    assert config == {"x": wanted}
    assert type(config["x"]) is int


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "4"])
def test_what_is_no_finite_number_is_drawn_from_the_domain(value: Any) -> None:
    config = perturbed(
        {"x": value},
        {"x": randint(3, 4)},
        random.Random(0),
        resample_probability=0.0,
        factors=[1.2],
    )

    assert config == {"x": 3}


@pytest.mark.parametrize(
    ("space", "mutations", "message"),
    [
        ({"lr": 5.0}, {"lr": uniform(0.1, 1.0)}, "'lr': 5.0 is outside of Float(0.1, 1.0).uniform"),
        ({"n": 65}, {"n": randint(1, 65)}, "'n': 65 is outside of Integer(1, 65)"),
        ({"n": 2.5}, {"n": randint(1, 65)}, "'n': 2.5 is outside"),
        ({"n": grid_search([1, 0])}, {"n": randint(1, 65)}, "'n': 0 is outside"),
        ({"n": choice([1, 70])}, {"n": randint(1, 65)}, "'n': 70 is outside"),
        (
            {"a": {"n": uniform(7, 8)}},
            {"a": {"n": uniform(0, 1)}},
            "'a/n': Float(7.0, 8.0).uniform",
        ),
        ({"n": float("inf")}, {"n": randint(1, 65)}, "'n': inf is outside"),
    ],
)
def test_a_study_that_begins_outside_of_what_is_explored_is_refused(
    space: dict[str, Any], mutations: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        pbt(hyperparam_mutations=mutations).check_space(space)

    assert "widen the domain" in str(refused.value.hint)


def test_a_space_that_starts_inside_or_at_unknown_values_is_accepted() -> None:
    mutations = {"lr": uniform(0.1, 1.0), "n": [1, 2], "m": lambda: 3, "o": choice(["a"])}
    for lr in (0.1, 1, uniform(0.5, 7), lambda: 9, sample_from(lambda: 9), None, "x"):
        pbt(hyperparam_mutations=mutations).check_space({"lr": lr, "n": 7, "m": 8, "o": "b"})


def test_the_factors_can_be_chosen() -> None:
    assert set(
        mutated(uniform(1, 6), 1.0, 50, resample_probability=0, perturbation_factors=[3.0])
    ) == {3.0}


def test_a_value_of_a_list_moves_by_one_place() -> None:
    counts = mutated(["a", "b", "c", "d"], "b", resample_probability=0)
    assert set(counts) == {"a", "c"}
    assert 160 < counts["a"] < 240

    assert set(mutated(["a", "b", "c"], "c", resample_probability=0)) == {"b", "c"}
    assert set(mutated(choice([1, 2, 3]), 1, resample_probability=0)) == {1, 2}


def test_a_value_that_is_not_in_the_list_is_drawn() -> None:
    assert set(mutated(["a", "b"], "z", resample_probability=0)) == {"a", "b"}


def test_values_are_resampled_with_the_given_probability() -> None:
    counts = mutated(["a", "b", "c", "d"], "b", resample_probability=0.25)

    # A quarter of the time one of four, else a neighbour: d only by a draw, 1/16 of the time.
    assert 10 < counts["d"] < 45
    assert 10 < counts["b"] < 45
    assert set(mutated(uniform(5, 6), 1.0, 50, resample_probability=1)).isdisjoint({1.2, 0.8})


def test_what_cannot_be_multiplied_is_drawn() -> None:
    assert set(mutated(lambda: "new", "old", 20, resample_probability=0)) == {"new"}
    assert set(mutated(lambda: 5, True, 20, resample_probability=0)) == {5}


def test_users_functions_draw_the_same_again_and_leave_global_generators_alone() -> None:
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


def test_a_function_that_returns_nothing_is_refused() -> None:
    study = population(pbt(synch=True, custom_explore_fn=lambda config: None), 4)
    with pytest.raises(TuneError, match="custom_explore_fn returned None"):
        meet(study, 2)

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.tune.search import sample


def drawn(domain: sample.Domain, count: int, seed: int = 0) -> list[Any]:
    generator = random.Random(seed)
    return [domain.draw(generator) for _ in range(count)]


@pytest.mark.parametrize(
    ("lower", "upper", "q", "multiples"),
    [
        (1, 10, 3, [3, 6, 9]),
        (1, 100, 10, list(range(10, 101, 10))),
        (-5, 5, 4, [-4, 0, 4]),
        (7, 8, 4, [8]),
    ],
)
def test_whole_multiples_lie_between_any_bounds(
    lower: int, upper: int, q: int, multiples: list[int]
) -> None:
    for name in ("qrandint", "qlograndint"):
        if name == "qlograndint" and lower < 1:
            continue
        domain = getattr(sample, name)(lower, upper, q)

        assert sorted(set(drawn(domain, 2000))) == multiples


@pytest.mark.parametrize("q", [1, 2])
def test_qrandint_gives_its_upper_bound_whatever_q_is(q: int) -> None:
    values = drawn(sample.qrandint(2, 6, q), 500)

    assert set(values) == set(range(2, 7, q))


def test_randint_and_lograndint_never_give_their_upper_bound() -> None:
    assert set(drawn(sample.randint(1, 4), 300)) == {1, 2, 3}
    assert set(drawn(sample.lograndint(1, 4), 300)) == {1, 2, 3}


def test_the_bounds_of_a_quantized_domain_are_as_likely_as_what_is_between() -> None:
    counts = Counter(drawn(sample.quniform(0, 1, 0.25), 10_000))

    assert set(counts) == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert min(counts.values()) > 1800


def test_multiples_are_written_as_a_person_would() -> None:
    assert set(drawn(sample.quniform(0.1, 0.4, 0.1), 200)) == {0.1, 0.2, 0.3, 0.4}


def test_lograndint_follows_the_logarithm() -> None:
    counts = Counter(drawn(sample.lograndint(1, 8), 20_000))

    for number in range(1, 8):
        expected = 20_000 * math.log((number + 1) / number) / math.log(8)
        assert abs(counts[number] - expected) < 5 * math.sqrt(expected)
    assert counts == Counter(drawn(sample.qlograndint(1, 7, 1), 20_000))


def test_normal_values_have_the_mean_and_deviation_asked_for() -> None:
    values = drawn(sample.randn(10, 2), 20_000)
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))

    assert abs(mean - 10) < 0.06
    assert abs(deviation - 2) < 0.05
    assert all(value % 0.5 == 0 for value in drawn(sample.qrandn(10, 2, 0.5), 100))


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        (
            "uniform",
            (
                2,
                1,
            ),
            "nothing lies between",
        ),
        (
            "uniform",
            (
                0,
                math.inf,
            ),
            "finite",
        ),
        (
            "uniform",
            (
                math.nan,
                1,
            ),
            "finite",
        ),
        (
            "uniform",
            (
                "1e-4",
                1,
            ),
            "YAML",
        ),
        (
            "loguniform",
            (
                0,
                1,
            ),
            "no logarithm",
        ),
        (
            "lograndint",
            (
                0,
                10,
            ),
            "no logarithm",
        ),
        (
            "quniform",
            (
                0,
                1,
                0.3,
            ),
            "not a multiple",
        ),
        (
            "quniform",
            (
                0,
                1,
                0,
            ),
            "above 0",
        ),
        (
            "qrandint",
            (
                5,
                7,
                4,
            ),
            "no multiple of q=4 lies between 5 and 7",
        ),
        (
            "randint",
            (
                3,
                3,
            ),
            "not included",
        ),
        (
            "randint",
            (
                1.5,
                3,
            ),
            "whole number",
        ),
        (
            "randn",
            (
                0,
                -1,
            ),
            "above 0",
        ),
        ("qrandint", (1, 10, 0), "above 0"),
        ("choice", ([],), "no value"),
        ("choice", ("abc",), "not a list"),
        ("grid_search", (3,), "not a list"),
        ("sample_from", (3,), "not a function"),
    ],
)
def test_what_cannot_be_drawn_from_is_refused_where_it_is_written(
    name: str, given: tuple[Any, ...], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        getattr(sample, name)(*given)


def test_a_base_is_accepted_with_a_warning_that_it_is_ignored() -> None:
    with pytest.warns(DeprecationWarning, match="is ignored"):
        domain = sample.loguniform(1e-3, 1, base=2)

    assert domain == sample.loguniform(1e-3, 1)


def test_a_domain_can_be_asked_for_values_by_hand() -> None:
    assert sample.uniform(0, 1).sample(random_state=7) == sample.uniform(0, 1).sample(
        random_state=7
    )
    assert len(sample.choice([1, 2]).sample(size=5)) == 5
    assert sample.sample_from(lambda config: config["a"] + 1).sample({"a": 1}) == 2
    assert sample.sample_from(lambda: 3).sample() == 3


def test_numbers_of_numpy_are_bounds_like_any_other() -> None:
    numpy = pytest.importorskip("numpy")

    assert set(drawn(sample.randint(numpy.int64(1), numpy.int64(3)), 50)) == {1, 2}
    assert drawn(sample.uniform(numpy.float32(1), numpy.float32(1)), 1) == [1.0]
    assert sample.choice(numpy.array([1, 2])).categories == [1, 2]


def test_a_domain_of_whole_numbers_has_no_multiples_of_nothing() -> None:
    with pytest.raises(ConfigError, match="q must be above 0"):
        sample.Integer(1, 10).quantized(0)

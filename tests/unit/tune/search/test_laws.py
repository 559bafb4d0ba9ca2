"""What is drawn follows the law that its domain names, held against the law's own formula.

Seeds are fixed, so that a test passes always or never. Where values are continuous, the greatest
distance between the shares below a value is what Kolmogorov and Smirnov allow one time in a
thousand; where they are not, the sum of squares is what chi squared does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.tune.search import BasicVariantGenerator, Proposal, SearchPlan
from holdfast.tune.search.sample import (
    choice,
    lograndint,
    loguniform,
    qloguniform,
    qrandint,
    quniform,
    randint,
    randn,
    uniform,
)

DRAWS = 4000
DISTANCE_MAX = 1.95 / math.sqrt(DRAWS)


def drawn(domain: Any) -> list[Any]:
    """Return what a study would try first, one trial after the other."""
    plan = SearchPlan(BasicVariantGenerator(random_state=17), {"x": domain}, num_samples=DRAWS)
    values = []
    while isinstance(proposal := plan.next(), Proposal):
        values.append(proposal.config["x"])
    return values


def chi_squared_max(freedom: int) -> float:
    """Return what is exceeded one time in a thousand (Wilson and Hilferty)."""
    return float(freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3)


@pytest.mark.parametrize(
    ("domain", "share_below"),
    [
        (uniform(-3, 5), lambda x: (x + 3) / 8),
        (loguniform(1e-5, 1e-1), lambda x: math.log(x / 1e-5) / math.log(1e4)),
        (loguniform(2, 3), lambda x: math.log(x / 2) / math.log(1.5)),
        (randn(), lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2)))),
        (randn(10, 0.5), lambda x: 0.5 * (1 + math.erf((x - 10) / 0.5 / math.sqrt(2)))),
    ],
    ids=["uniform", "loguniform", "narrow loguniform", "randn", "shifted randn"],
)
def test_continuous_values_follow_their_law(
    domain: Any, share_below: Callable[[float], float]
) -> None:
    values = sorted(drawn(domain))
    far = max(
        max((at + 1) / DRAWS - share_below(value), share_below(value) - at / DRAWS)
        for at, value in enumerate(values)
    )

    assert far < DISTANCE_MAX


def log_share(low: float, high: float, first: float, last: float) -> float:
    return math.log(min(high, last) / max(low, first)) / math.log(last / first)


@pytest.mark.parametrize(
    ("domain", "law"),
    [
        (randint(3, 9), dict.fromkeys(range(3, 9), 1 / 6)),
        (randint(-2, 3), dict.fromkeys(range(-2, 3), 1 / 5)),
        (lograndint(1, 11), {k: log_share(k, k + 1, 1, 11) for k in range(1, 11)}),
        (qrandint(0, 20, 5), dict.fromkeys(range(0, 21, 5), 1 / 5)),  # the ends as often as others
        (quniform(0.5, 2.0, 0.5), {k / 2: 1 / 4 for k in range(1, 5)}),
        (
            qloguniform(1, 4, 1),
            {k: log_share(k - 0.5, k + 0.5, 0.5, 4.5) for k in range(1, 5)},
        ),
        (choice(["a", "b", "c"]), dict.fromkeys("abc", 1 / 3)),
        (choice(["a", "a", "b"]), {"a": 2 / 3, "b": 1 / 3}),
    ],
    ids=["randint", "negative randint", "lograndint", "qrandint", "quniform", "qloguniform",
         "choice", "choice with one twice"],
)  # fmt: skip
def test_values_with_steps_follow_their_law(domain: Any, law: dict[Any, float]) -> None:
    counts = Counter(drawn(domain))
    squares = sum((counts[k] - DRAWS * share) ** 2 / (DRAWS * share) for k, share in law.items())

    assert sum(law.values()) == pytest.approx(1)
    assert set(counts) == set(law)
    assert squares < chi_squared_max(len(law) - 1)


@pytest.mark.parametrize(("freedom", "tabled"), [(1, 10.83), (5, 20.52), (10, 29.59)])
def test_the_measure_itself_is_that_of_the_tables(freedom: int, tabled: float) -> None:
    assert chi_squared_max(freedom) == pytest.approx(tabled, rel=0.04)

from __future__ import annotations

import math
import random
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.config_data import config_from_data, config_to_data
from holdfast.core.plain_data import same
from holdfast.tune.search.basic_variant import BasicVariantGenerator
from holdfast.tune.search.sample import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    quniform,
    randint,
    uniform,
)

bounds = st.tuples(
    st.floats(-1e9, 1e9, allow_nan=False), st.floats(-1e9, 1e9, allow_nan=False)
).map(sorted)
above_zero = st.tuples(st.floats(1e-12, 1e9), st.floats(1e-12, 1e9)).map(sorted)
whole = st.tuples(st.integers(-(10**12), 10**12), st.integers(1, 10**12))
counts = st.tuples(st.integers(1, 10**6), st.integers(0, 10**6))
steps = st.sampled_from([0.1, 0.25, 0.3, 1e-3, 2.5, 7.0, 1 / 3])
seeds = st.integers(0, 2**32)


@given(bounds, above_zero, whole, seeds)
def test_no_value_is_out_of_bounds(
    ends: list[float], positive: list[float], ints: tuple[int, int], seed: int
) -> None:
    generator = random.Random(seed)

    assert ends[0] <= uniform(*ends).draw(generator) <= ends[1]
    assert positive[0] <= loguniform(*positive).draw(generator) <= positive[1]
    lower, width = ints
    assert lower <= randint(lower, lower + width).draw(generator) < lower + width
    assert lower <= qrandint(lower, lower + width).draw(generator) <= lower + width
    first = abs(lower) + 1
    assert first <= lograndint(first, first + width).draw(generator) < first + width


@given(counts, steps, seeds)
def test_a_quantized_value_is_a_multiple_within_bounds(
    count: tuple[int, int], q: float, seed: int
) -> None:
    first, width = count
    lower, upper = first * q, (first + width) * q
    generator = random.Random(seed)
    for domain in (quniform(lower, upper, q), qloguniform(lower, upper, q)):
        value = domain.draw(generator)
        assert lower * (1 - 1e-9) <= value <= upper * (1 + 1e-9)
        assert math.isclose(round(value / q) * q, value, rel_tol=1e-9)
    for whole_domain in (qrandint, qlograndint):
        found = whole_domain(first * 3, (first + width) * 3, 3).draw(generator)
        assert found % 3 == 0 and first * 3 <= found <= (first + width) * 3


@pytest.mark.parametrize("seed", range(5))
def test_the_logarithms_of_loguniform_values_are_uniform(seed: int) -> None:
    """The greatest distance of the empirical distribution, against its 1 in 10,000 quantile."""
    generator = random.Random(seed)
    count = 4000
    for domain in (loguniform(1e-6, 1e3), uniform(math.log(1e-6), math.log(1e3))):
        values = [domain.draw(generator) for _ in range(count)]
        if domain.get_sampler() == loguniform(1, 2).get_sampler():
            values = [math.log(value) for value in values]
        low, high = math.log(1e-6), math.log(1e3)
        ranks = sorted((value - low) / (high - low) for value in values)
        far = max(abs(place - at / count) for at, place in enumerate(ranks))

        assert far < 2.2 / math.sqrt(count)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(0, 10**6),
    st.data(),
)
def test_the_nth_variant_depends_on_nothing_but_its_number(
    sizes: list[int], num_samples: int, seed: int, data: Any
) -> None:
    space = {f"g{at}": grid_search(list(range(size))) for at, size in enumerate(sizes)}
    space |= {"x": uniform(0, 1), "k": choice(["a", "b", "c"])}  # type: ignore[dict-item]

    def made() -> BasicVariantGenerator:
        generator = BasicVariantGenerator(random_state=seed)
        generator.set_search_properties(None, None, space)
        return generator

    whole_run = made()
    total = math.prod(sizes) * num_samples
    assert whole_run.count_trials(num_samples) == total
    found = [whole_run.suggest(f"t{at}") for at in range(total)]
    number = data.draw(st.integers(0, total - 1))

    assert made().variant(number) == found[number]
    grids = [tuple(one[f"g{at}"] for at in range(len(sizes))) for one in found]
    assert len(set(grids)) == math.prod(sizes)


paths = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).flatmap(
    lambda text: st.sampled_from([Path(text), PurePosixPath(text), PureWindowsPath(text)])
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | paths
keys = st.text() | st.integers() | st.booleans() | st.none() | st.tuples(st.integers())
configs = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=12,
)


@given(configs)
def test_any_plain_data_comes_back_from_json(config: Any) -> None:
    import json

    assert same(config_from_data(json.loads(json.dumps(config_to_data(config)))), config)

"""Random numbers that continue from a saved state, or start from a seed."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.train.torch import enable_reproducibility, rng_state, set_rng_state


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the generators, and torch's settings, after a test."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    state = rng_state()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    yield
    set_rng_state(state)
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn


def _draw() -> list[float]:
    return [
        random.random(),
        random.gauss(0, 1),  # keeps a second number in mind
        float(np.random.rand()),
        float(np.random.randn()),
        torch.rand(1).item(),
        torch.randn(1).item(),
    ]


def _stored(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state that was saved and loaded as checkpoints are, running no code."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert isinstance(loaded, dict)
    return loaded


def test_all_random_numbers_go_on_from_a_state_that_was_saved() -> None:
    _draw()
    state = _stored(rng_state())
    then = [_draw() for _ in range(3)]
    random.seed(9)
    np.random.seed(9)
    torch.manual_seed(9)

    set_rng_state(state)

    assert [_draw() for _ in range(3)] == then


def test_taking_the_state_draws_nothing() -> None:
    state = rng_state()
    first = _draw()
    set_rng_state(state)
    rng_state()

    assert _draw() == first


@pytest.mark.parametrize("state", [{}, {"torch": torch.get_rng_state()}, None, {"python": 3}])
def test_what_is_no_state_is_refused_and_changes_nothing(state: Any) -> None:
    before = rng_state()

    with pytest.raises(ConfigError, match="must be what rng_state"):
        set_rng_state(state)

    expected = _draw()
    set_rng_state(before)
    assert _draw() == expected


def test_reproducible_processes_draw_the_same_and_compute_deterministically() -> None:
    enable_reproducibility(7)
    first = _draw()
    enable_reproducibility(7)

    assert _draw() == first
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"

    enable_reproducibility(8)

    assert _draw() != first

"""A clock that stands still, and a store of either kind whose journal writes fail on cue."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.storage.base import Store
from tests.clocks import FakeClock
from tests.unit.journal.holders import Faults, FaultyLocal, FaultyMemory


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture(params=["local", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path, faults: Faults) -> Store:
    if request.param == "local":
        return FaultyLocal(tmp_path / "run", faults)
    return FaultyMemory(faults)

"""Where the loggers under test write: on a disk, and on a store of objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.storage.base import Store
from holdfast.storage.locate import open_store
from holdfast.storage.memory import MemoryStore


@pytest.fixture(params=["disk", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(tmp_path / "study") if request.param == "disk" else MemoryStore()

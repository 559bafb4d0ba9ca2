"""Engines for tests of the local one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.engine.local.engine import LocalEngine
from holdfast.engine.nodes import LocalNodes
from holdfast.testing.suites.engine import ENTRY
from tests.conformance.engine_host import EngineHost


@pytest.fixture
def nodes() -> LocalNodes:
    return LocalNodes(2)


@pytest.fixture
def engine(nodes: LocalNodes) -> Iterator[LocalEngine]:
    engine = LocalEngine(ENTRY, nodes=nodes)
    yield engine
    engine.close()


@pytest.fixture
def host() -> Iterator[EngineHost]:
    """A driver of its own, with one thread and nothing in it."""
    host = EngineHost()
    yield host
    host.end()

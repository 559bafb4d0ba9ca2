"""Every engine we ship, under the suites that we ship."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engine.base import Engine
from holdfast.engine.inline import InlineEngine
from holdfast.engine.local.engine import LocalEngine
from holdfast.engine.nodes import LocalNodes
from holdfast.testing.suites.engine import (
    ENTRY,
    EngineSuite,
    ProcessEngineSuite,
    RealEngineSuite,
)
from holdfast.testing.suites.engine_groups import GroupsSuite
from holdfast.testing.suites.engine_stacks import StacksSuite
from tests.conformance.engine_host import EngineHost
from tests.conformance.engine_on_stage import EngineOnStage


class TestLocalWithNewInterpreter(ProcessEngineSuite, StacksSuite, GroupsSuite):
    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        engine = LocalEngine(ENTRY, nodes=LocalNodes(2), start="spawn")
        yield engine
        engine.close()


@pytest.fixture(scope="module")
def host() -> Iterator[EngineHost]:
    host = EngineHost()
    yield host
    host.end()


class TestLocalWithForkedDriver(ProcessEngineSuite, StacksSuite, GroupsSuite):
    @pytest.fixture
    def engine(self, host: EngineHost) -> Engine:
        host.new("fork")
        return host


class TestInline(RealEngineSuite):
    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        engine = InlineEngine(ENTRY)
        worker = threading.Thread(target=_serve, args=(engine,))
        worker.start()
        yield engine
        engine.close()
        worker.join()


class TestSimulated(EngineSuite, GroupsSuite):
    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[Engine]:
        engine = EngineOnStage(str(tmp_path))
        yield engine
        engine.leave()


def _serve(engine: InlineEngine) -> None:
    is_open = True
    while is_open:
        with contextlib.suppress(ConnectionError):  # what `echo` raises when it is stopped
            is_open = engine.serve()

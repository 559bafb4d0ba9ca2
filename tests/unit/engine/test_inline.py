"""The worker inside the driver: exceptions are the caller's, and nothing is left changed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.run.outcomes import Died, Evicted, Finished, Raised
from holdfast.engine.base import Ended, EngineError
from holdfast.engine.inline import InlineEngine
from holdfast.testing.suites.engine import ENTRY, ends, reports, start
from holdfast.wire import Met
from tests.patience import PATIENCE_S


@pytest.fixture
def engine() -> Iterator[InlineEngine]:
    engine = InlineEngine(ENTRY)
    yield engine
    engine.close()


def test_what_the_function_raises_is_raised_to_the_caller(
    engine: InlineEngine, tmp_path: Path
) -> None:
    start(engine, tmp_path, "burst=bang")

    with pytest.raises(ValueError, match="bang") as caught:
        engine.serve()

    ended = ends(engine, 1)[0].exit
    assert isinstance(ended, Raised)
    assert ended.error == "ValueError: bang"
    assert "in _burst" in ended.trace
    assert caught.traceback[-1].name == "_burst"


def test_one_that_returns_without_a_word_has_died(tmp_path: Path) -> None:
    engine = InlineEngine("os:close")  # which closes its socket, and says nothing
    start(engine, tmp_path, "")
    engine.serve()

    ended = ends(engine, 1)[0].exit
    assert isinstance(ended, Died)
    assert (ended.exit_code, ended.pid) == (0, os.getpid())
    engine.close()


def test_the_environment_is_put_back(
    engine: InlineEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(engine, tmp_path, "environment=RANK_OF_WORKER")
    engine.serve()
    assert reports(engine, 1) == [{"value": "0"}]
    assert "RANK_OF_WORKER" not in os.environ

    monkeypatch.setenv("RANK_OF_WORKER", "mine")
    ends(engine, 1)
    start(engine, tmp_path, "burst=1", group=2)
    with pytest.raises(ValueError, match="1"):
        engine.serve()
    assert os.environ["RANK_OF_WORKER"] == "mine"


def test_there_is_one_worker_and_no_more(engine: InlineEngine, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="2 workers were requested; the inline engine runs one"):
        start(engine, tmp_path, "", "")
    start(engine, tmp_path, "")

    with pytest.raises(EngineError, match="an earlier group is still inside its function"):
        start(engine, tmp_path, "", group=2)


def test_a_group_that_was_stopped_before_anyone_served_it_is_over(
    engine: InlineEngine, tmp_path: Path
) -> None:
    start(engine, tmp_path, "report=1")
    engine.stop_group(1)

    assert isinstance(ends(engine, 1)[0].exit, Evicted)
    start(engine, tmp_path, "", group=2)
    assert engine.serve()
    assert isinstance(ends(engine, 1)[0].exit, Finished)


def test_a_worker_that_finishes_although_it_was_stopped_was_evicted_or_finished(
    engine: InlineEngine, tmp_path: Path
) -> None:
    start(engine, tmp_path, "echo report=1")
    thread = threading.Thread(target=engine.serve)
    thread.start()
    engine.send(1, 0, Met(-1))
    thread.join()

    engine.stop_group(1)

    assert isinstance(ends(engine, 1)[0].exit, Finished)  # it had said so before


def test_one_who_waits_to_serve_is_let_go_by_a_close(engine: InlineEngine) -> None:
    served: list[bool] = []
    thread = threading.Thread(target=lambda: served.append(engine.serve()))
    thread.start()

    engine.close()
    thread.join(PATIENCE_S)

    assert served == [False]
    assert engine.next_event(None) is None


def test_events_come_in_order_while_another_thread_listens(
    engine: InlineEngine, tmp_path: Path
) -> None:
    """The way it is used: this thread is the worker, another one the controller."""
    events: list[object] = []

    def listen() -> None:
        while not any(isinstance(event, Ended) for event in events):
            events.append(engine.next_event(PATIENCE_S))

    controller = threading.Thread(target=listen)
    controller.start()
    start(engine, tmp_path, "report=300")

    assert engine.serve()
    controller.join(PATIENCE_S)

    assert [type(event).__name__ for event in events] == ["Said"] * 300 + ["Ended"]

"""Where a worker stands, whatever it does: part of what a process engine must do."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from holdfast.core.run.outcomes import Evicted, Finished
from holdfast.engine.base import Engine
from holdfast.testing.suites.engine import (
    PATIENCE_S,
    PAUSE_S,
    ends,
    is_running,
    log_of,
    reports,
    said,
    stacks_with,
    start,
    state_of,
)
from holdfast.wire import Meeting, Met, Reported


class StacksSuite:
    """What `Engine.stacks` must tell."""

    @pytest.mark.parametrize(
        ("order", "places"),
        [
            ("hang", ["in _hang"]),
            ("hog", ["in _hog"]),
            ("deadlock", ["in _deadlock", "in wait_for_main"]),
            ("echo", ["in _echo", "in wait"]),
        ],
    )
    def test_it_says_where_a_worker_stands_whatever_it_does(
        self, engine: Engine, tmp_path: Path, order: str, places: list[str]
    ) -> None:
        start(engine, tmp_path, order)

        found = stacks_with(engine, *places)

        assert found[0].startswith(("Thread 0x", "Current thread 0x"))

    def test_one_that_can_answer_is_not_interrupted(self, engine: Engine, tmp_path: Path) -> None:
        """Frames that are looked at while they are made and left can be anywhere, and kill."""
        start(engine, tmp_path, "report=1 spin")
        reports(engine, 1)

        found = [stacks_with(engine, "in _spin")[0] for _ in range(20)]

        assert not [text for text in found if "Current" in text]  # as a handler writes

    def test_asking_changes_nothing(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "child echo", "hang")
        [child] = [one["child"] for one in reports(engine, 1)]
        stacks_with(engine, "in _echo")

        found = [engine.stacks(1) for _ in range(20)]
        engine.send(1, 0, Met(1))
        answer = engine.next_event(PATIENCE_S)

        assert all(sorted(one) == [0, 1] for one in found)
        assert all("_echo" in one[0] and "_hang" not in one[0] for one in found)
        assert getattr(answer, "message", None) == Meeting(1)
        assert is_running(child)
        engine.stop_group(1)
        assert sorted(tmp_path.rglob("*.*")) == [log_of(tmp_path, 0), log_of(tmp_path, 1)]
        assert log_of(tmp_path, 0).read_text() == ""

    def test_of_one_that_was_put_to_sleep_it_says_so(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "report=1 echo", "report=1 hang")
        pids = [one["pid"] for one in reports(engine, 2)]
        for pid in pids[:1]:
            os.kill(pid, signal.SIGSTOP)
            while state_of(pid) != "T":
                time.sleep(PAUSE_S)

        found = engine.stacks(1, timeout_s=86_400.0)  # there is nothing to wait for

        asleep = [rank for rank, text in found.items() if "was put to sleep" in text]
        assert len(asleep) == 1
        assert "in obey" in found[1 - asleep[0]]

    def test_of_one_that_waits_in_the_kernel_it_says_so(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, f"report=1 stick={tmp_path / 'pipe'}", "report=1 hang")
        pids = {event.rank: event.message for event in (said(engine), said(engine))}
        message = pids[0]
        assert isinstance(message, Reported)
        while state_of(message.metrics["pid"]) != "D":
            time.sleep(PAUSE_S)

        found = engine.stacks(1, timeout_s=0.5)

        assert "waits in the kernel and cannot be interrupted" in found[0]
        assert "in obey" in found[1]
        engine.stop_group(1)
        assert all(isinstance(one.exit, Evicted) for one in ends(engine, 2).values())

    def test_of_one_that_became_another_program_it_says_so(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "execute")
        while log_of(tmp_path, 0).read_text() != "executed\n":
            time.sleep(PAUSE_S)

        found = engine.stacks(1)

        assert found == {0: "the process has become another program"}
        assert engine.next_event(0.0) is None  # the question has not killed it
        engine.stop_group(1)
        assert isinstance(ends(engine, 1)[0].exit, Evicted)

    def test_a_worker_that_has_just_begun_is_not_hurt_by_the_question(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        for group in range(1, 6):
            start(engine, tmp_path, "report=1", "report=1", group=group)
            found = engine.stacks(group)

            assert not [text for text in found.values() if "another program" in text]
            assert all(isinstance(one.exit, Finished) for one in ends(engine, 2).values())

    def test_a_worker_with_many_threads_tells_of_all(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "threads=80 hang")
        reports(engine, 1)

        found = stacks_with(engine, "in _hang")[0]

        assert found.count("in _rest") == 80
        assert found.count("in _hang") == 1

"""The conformance suite of `Engine.stacks`, for engines whose workers are processes."""

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
    """`Engine.stacks` works whatever a worker does, and does not disturb it."""

    @pytest.mark.parametrize(
        ("order", "places"),
        [
            ("hang", ["in _hang"]),
            ("hog", ["in _hog"]),
            ("deadlock", ["in _deadlock", "in wait_for_main"]),
            ("echo", ["in _echo", "in wait"]),
        ],
    )
    def test_stacks_show_where_a_worker_is_whatever_it_does(
        self, engine: Engine, tmp_path: Path, order: str, places: list[str]
    ) -> None:
        start(engine, tmp_path, order)

        stacks = stacks_with(engine, *places)

        assert stacks[0].startswith(("Thread 0x", "Current thread 0x"))

    def test_one_that_can_answer_is_not_interrupted(self, engine: Engine, tmp_path: Path) -> None:
        """A signal handler may read frames that are being made or left, which can crash."""
        start(engine, tmp_path, "report=1 spin")
        reports(engine, 1)

        texts = [stacks_with(engine, "in _spin")[0] for _ in range(20)]

        assert not [text for text in texts if "Current" in text]  # as a handler writes

    def test_asking_changes_nothing(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "child echo", "hang")
        [child] = [metrics["child"] for metrics in reports(engine, 1)]
        stacks_with(engine, "in _echo")

        answers = [engine.stacks(1) for _ in range(20)]
        engine.send(1, 0, Met(1))
        event = engine.next_event(PATIENCE_S)

        assert all(sorted(stacks) == [0, 1] for stacks in answers)
        assert all("_echo" in stacks[0] and "_hang" not in stacks[0] for stacks in answers)
        assert getattr(event, "message", None) == Meeting(1)
        assert is_running(child)
        engine.stop_group(1)
        assert sorted(tmp_path.rglob("*.*")) == [log_of(tmp_path, 0), log_of(tmp_path, 1)]
        assert log_of(tmp_path, 0).read_text() == ""

    def test_a_worker_that_was_put_to_sleep_is_reported_so(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "report=1 echo", "report=1 hang")
        pids = [metrics["pid"] for metrics in reports(engine, 2)]
        for pid in pids[:1]:
            os.kill(pid, signal.SIGSTOP)
            while state_of(pid) != "T":
                time.sleep(PAUSE_S)

        stacks = engine.stacks(1, timeout_s=86_400.0)  # there is nothing to wait for

        asleep = [rank for rank, text in stacks.items() if "was put to sleep" in text]
        assert len(asleep) == 1
        assert "in obey" in stacks[1 - asleep[0]]

    def test_a_worker_that_waits_in_the_kernel_is_reported_so(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, f"report=1 stick={tmp_path / 'pipe'}", "report=1 hang")
        pids = {event.rank: event.message for event in (said(engine), said(engine))}
        message = pids[0]
        assert isinstance(message, Reported)
        while state_of(message.metrics["pid"]) != "D":
            time.sleep(PAUSE_S)

        stacks = engine.stacks(1, timeout_s=0.5)

        assert "waits in the kernel and cannot be interrupted" in stacks[0]
        assert "in obey" in stacks[1]
        engine.stop_group(1)
        assert all(isinstance(ended.exit, Evicted) for ended in ends(engine, 2).values())

    def test_a_worker_that_became_another_program_is_reported_so(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "execute")
        while log_of(tmp_path, 0).read_text() != "executed\n":
            time.sleep(PAUSE_S)

        stacks = engine.stacks(1)

        assert stacks == {0: "the process has become another program"}
        assert engine.next_event(0.0) is None  # the question has not killed it
        engine.stop_group(1)
        assert isinstance(ends(engine, 1)[0].exit, Evicted)

    def test_a_worker_that_has_just_begun_is_not_hurt_by_the_question(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        for group in range(1, 6):
            start(engine, tmp_path, "report=1", "report=1", group=group)
            stacks = engine.stacks(group)

            assert not [text for text in stacks.values() if "another program" in text]
            assert all(isinstance(ended.exit, Finished) for ended in ends(engine, 2).values())

    def test_all_threads_of_a_worker_are_shown(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "threads=80 hang")
        reports(engine, 1)

        text = stacks_with(engine, "in _hang")[0]

        assert text.count("in _rest") == 80
        assert text.count("in _hang") == 1

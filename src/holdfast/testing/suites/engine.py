"""What every engine must do, ours or yours: subclass `EngineSuite` and give it an `engine` fixture.

The engine under test must begin its workers at `holdfast.testing.workers:obey`.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from holdfast.core.outcomes import Died, Evicted, Finished, Raised
from holdfast.engine.base import Ended, Engine, Said, WorkerSpec
from holdfast.wire import Assigned, Meeting, Met, Reported

ENTRY = "holdfast.testing.workers:obey"
PATIENCE_S = 15.0


def start(engine: Engine, logs: Path, *orders: str, attempt: int = 1) -> None:
    """Start a group with a worker for each order."""
    nodes = engine.nodes()
    engine.start_group(
        attempt,
        [
            WorkerSpec(
                rank=rank,
                node=nodes[rank % len(nodes)],
                log=str(logs / f"attempt-{attempt}" / f"rank-{rank}.log"),
                first=Assigned(order.encode()),
                environment={"RANK_OF_WORKER": str(rank)},
            )
            for rank, order in enumerate(orders)
        ],
    )


def said(engine: Engine) -> Said:
    """Return the next message, which must come before any end."""
    event = engine.next_event(PATIENCE_S)
    assert isinstance(event, Said), event
    return event


def ends(engine: Engine, count: int) -> dict[int, Ended]:
    """Return the ends of `count` workers by rank, passing over what they say."""
    found: dict[int, Ended] = {}
    while len(found) < count:
        event = engine.next_event(PATIENCE_S)
        assert event is not None, f"only {sorted(found)} have ended"
        if isinstance(event, Ended):
            assert event.exit.rank not in found, "a worker ended twice"
            found[event.exit.rank] = event
    return found


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class EngineSuite:
    """The contract of `holdfast.engine.base.Engine`."""

    def test_a_worker_that_returns_has_finished(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "", "")

        ended = ends(engine, 2)

        assert [type(ended[rank].exit) for rank in (0, 1)] == [Finished, Finished]
        assert ended[0].words is not None
        assert ended[0].words.value == b"done"

    def test_everything_a_worker_said_comes_before_its_end(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "report=500 exit=3")

        indexes = [said(engine).message for _ in range(500)]
        last = engine.next_event(PATIENCE_S)

        assert [message.index for message in indexes if isinstance(message, Reported)] == [
            *range(500)
        ]
        assert isinstance(last, Ended)
        assert isinstance(last.exit, Died)
        assert last.exit.exit_code == 3

    def test_a_worker_that_raises_says_why(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "raise=ValueError")

        ended = ends(engine, 1)[0].exit

        assert isinstance(ended, Raised)
        assert (ended.error, ended.trace) == ("ValueError", "trace of ValueError")

    def test_each_way_to_die_is_told_apart(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "exit=0", "exit=7", "signal=9", "print=hello signal=11")

        ended = {rank: one.exit for rank, one in ends(engine, 4).items()}

        assert all(isinstance(one, Died) for one in ended.values())
        codes = [(one.exit_code, one.signal) for one in ended.values() if isinstance(one, Died)]
        assert sorted(codes, key=str) == [(0, None), (7, None), (None, 11), (None, 9)]

    def test_a_worker_prints_to_its_own_log(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "print=zero", "print=one")
        ends(engine, 2)

        assert (tmp_path / "attempt-1" / "rank-0.log").read_text() == "zero\n"
        assert (tmp_path / "attempt-1" / "rank-1.log").read_text() == "one\n"

    def test_messages_reach_the_rank_they_are_for(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "echo", "echo")

        engine.send(1, 1, Met(7, b"x" * 300_000))
        event = said(engine)

        assert (event.attempt, event.rank) == (1, 1)
        assert event.message == Meeting(7, b"x" * 300_000)
        engine.stop_group(1)

    def test_a_message_for_an_attempt_that_is_over_is_lost(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "exit=1")
        ends(engine, 1)
        start(engine, tmp_path, "echo", attempt=2)

        engine.send(1, 0, Met(1))
        engine.send(2, 5, Met(2))
        engine.send(2, 0, Met(3))

        assert said(engine).message == Meeting(3)
        engine.stop_group(2)

    def test_a_stopped_group_runs_no_more_and_was_evicted(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "report=1 hang", "report=1 deaf hang")
        pids = {one["pid"] for one in self._reports(engine, 3) if "pid" in one}

        engine.stop_group(1)

        assert not any(is_running(pid) for pid in pids)
        engine.stop_group(1)  # again is no error
        assert all(isinstance(one.exit, Evicted) for one in ends(engine, 2).values())

    def test_a_worker_may_end_by_itself_within_the_grace(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "deaf hang", "report=1 hang")
        self._reports(engine, 2)

        engine.stop_group(1, grace_s=0.1)

        assert all(isinstance(one.exit, Evicted) for one in ends(engine, 2).values())

    def test_what_a_worker_started_goes_with_it(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "child signal=9")
        [killed] = self._reports(engine, 1)
        ends(engine, 1)
        start(engine, tmp_path, "child hang", attempt=2)
        [stopped] = self._reports(engine, 1)
        engine.stop_group(2)

        assert not is_running(killed["child"])
        assert not is_running(stopped["child"])

    def test_a_stopped_process_can_be_ended(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "report=1 hang")
        pid = self._reports(engine, 1)[0]["pid"]
        os.kill(pid, signal.SIGSTOP)

        engine.stop_group(1, grace_s=0.05)

        assert not is_running(pid)

    def test_groups_follow_each_other(self, engine: Engine, tmp_path: Path) -> None:
        for attempt in range(1, 4):
            start(engine, tmp_path, "report=1", "report=1", attempt=attempt)
            assert {one.attempt for one in ends(engine, 2).values()} == {attempt}

    def test_a_worker_finds_its_environment(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "", "environment=RANK_OF_WORKER")

        assert self._reports(engine, 1) == [{"value": "1"}]

    def test_nothing_happens_in_time_if_nothing_happens(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "hang")

        assert engine.next_event(0.05) is None

    @staticmethod
    def _reports(engine: Engine, count: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while len(found) < count:
            event = engine.next_event(PATIENCE_S)
            assert event is not None, "a worker says nothing"
            if isinstance(event, Said) and isinstance(event.message, Reported):
                found.append(event.message.metrics)
        return found

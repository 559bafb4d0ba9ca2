"""The conformance suite of engines that run several workers and several groups at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.run.outcomes import Died, Evicted, Finished, Raised
from holdfast.engine.base import Ended, Engine, EngineError, Said, WorkerSpec
from holdfast.testing.suites.engine import PATIENCE_S, ends, log_of, reports, said, start
from holdfast.wire import Assigned, Meeting, Met


class GroupsSuite:
    """Workers and groups that run side by side do not affect each other."""

    def test_messages_reach_the_rank_they_are_for(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "echo", "echo")

        engine.send(1, 1, Met(7, data=b"x" * 300_000))
        event = said(engine)

        assert (event.group, event.rank) == (1, 1)
        assert event.message == Meeting(7, b"x" * 300_000)
        engine.stop_group(1)

    def test_a_worker_that_raises_says_why(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "raise=ValueError")

        ended = ends(engine, 1)[0].exit

        assert isinstance(ended, Raised)
        assert (ended.error, ended.trace) == ("ValueError", "trace of ValueError")

    def test_a_worker_that_dies_leaves_the_others_of_its_group_alone(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "exit=7", "echo")

        [dead] = ends(engine, 1).values()
        engine.send(1, 1, Met(3))

        assert isinstance(dead.exit, Died)
        assert (dead.exit.rank, dead.exit.exit_code) == (0, 7)
        assert said(engine).message == Meeting(3)

    def test_groups_of_equal_ranks_run_side_by_side(self, engine: Engine, tmp_path: Path) -> None:
        for group in (1, 2, 3):
            start(engine, tmp_path, "echo", group=group)

        engine.send(2, 0, Met(7))
        answer = said(engine)

        assert (answer.group, answer.message) == (2, Meeting(7))

    def test_stopping_one_group_leaves_the_others_alone(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        for group in (1, 2):
            start(engine, tmp_path, "report=1 echo", group=group)
            reports(engine, 1)

        engine.stop_group(1)
        engine.send(2, 0, Met(1))
        events = [engine.next_event(PATIENCE_S) for _ in range(2)]

        [ended] = [event for event in events if isinstance(event, Ended)]
        [answer] = [event for event in events if isinstance(event, Said)]
        assert (ended.group, type(ended.exit)) == (1, Evicted)
        assert (answer.group, answer.message) == (2, Meeting(1))

    def test_a_start_that_fails_leaves_the_others_alone(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "report=1 echo")
        reports(engine, 1)
        lost = WorkerSpec(
            rank=0, node="nowhere", log=str(log_of(tmp_path, 0, 2)), first=Assigned(b"echo")
        )

        with pytest.raises(EngineError, match="there is no node 'nowhere'"):
            engine.start_group(2, [lost])
        engine.send(1, 0, Met(1))

        assert said(engine).message == Meeting(1)

    def test_many_groups_come_and_go(self, engine: Engine, tmp_path: Path) -> None:
        ended: dict[int, Ended] = {}
        for group in range(1, 41):
            start(engine, tmp_path, "report=1", group=group)
            while group - len(ended) > 4:
                event = engine.next_event(PATIENCE_S)
                if isinstance(event, Ended):
                    ended[event.group] = event
        while len(ended) < 40:
            event = engine.next_event(PATIENCE_S)
            assert event is not None
            if isinstance(event, Ended):
                ended[event.group] = event

        assert all(isinstance(end.exit, Finished) for end in ended.values())

"""Several groups at once: part of what a process engine must do."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.outcomes import Evicted, Finished
from holdfast.engine.base import Ended, Engine, EngineError, Said, WorkerSpec
from holdfast.testing.suites.engine import PATIENCE_S, is_running, log_of, reports, said, start
from holdfast.wire import Assigned, Meeting, Met


class GroupsSuite:
    """Groups that run beside each other do not get in each other's way."""

    def test_groups_of_equal_ranks_run_side_by_side(self, engine: Engine, tmp_path: Path) -> None:
        for attempt in (1, 2, 3):
            start(engine, tmp_path, "echo", attempt=attempt)

        engine.send(2, 0, Met(7))
        answer = said(engine)

        assert (answer.attempt, answer.message) == (2, Meeting(7))

    def test_stopping_one_group_leaves_the_others_alone(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        pids = {}
        for attempt in (1, 2):
            start(engine, tmp_path, "report=1 echo", attempt=attempt)
            [pids[attempt]] = [one["pid"] for one in reports(engine, 1)]

        engine.stop_group(1)
        engine.send(2, 0, Met(1))
        events = [engine.next_event(PATIENCE_S) for _ in range(2)]

        [ended] = [one for one in events if isinstance(one, Ended)]
        [answer] = [one for one in events if isinstance(one, Said)]
        assert (ended.attempt, type(ended.exit)) == (1, Evicted)
        assert (answer.attempt, answer.message) == (2, Meeting(1))
        assert is_running(pids[2]) and not is_running(pids[1])

    def test_a_start_that_fails_leaves_the_others_alone(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "report=1 echo")
        [first] = reports(engine, 1)
        lost = WorkerSpec(
            rank=0, node="nowhere", log=str(log_of(tmp_path, 0, 2)), first=Assigned(b"echo")
        )

        with pytest.raises(EngineError, match="there is no node 'nowhere'"):
            engine.start_group(2, [lost])
        engine.send(1, 0, Met(1))

        assert said(engine).message == Meeting(1)
        assert is_running(first["pid"])

    def test_many_groups_come_and_go(self, engine: Engine, tmp_path: Path) -> None:
        ended: dict[int, Ended] = {}
        for attempt in range(1, 41):
            start(engine, tmp_path, "report=1", attempt=attempt)
            while attempt - len(ended) > 4:
                event = engine.next_event(PATIENCE_S)
                if isinstance(event, Ended):
                    ended[event.attempt] = event
        while len(ended) < 40:
            event = engine.next_event(PATIENCE_S)
            assert event is not None
            if isinstance(event, Ended):
                ended[event.attempt] = event

        assert all(isinstance(one.exit, Finished) for one in ended.values())

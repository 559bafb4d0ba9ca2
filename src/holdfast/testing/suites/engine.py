"""The conformance suites of `Engine`: subclass one and give it an `engine` fixture.

`EngineSuite` is for any engine, `GroupsSuite` (`engine_groups`) for any engine that runs more than
one worker; a simulated one passes both. `RealEngineSuite` adds what must be true if workers are not
simulated, `ProcessEngineSuite` if each is a process of its own. The entry point of the engine under
test must be `holdfast.testing.workers:obey`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.placement import Demand
from holdfast.core.run.outcomes import Died, Evicted, Finished
from holdfast.engine.base import Ended, Engine, EngineError, Said, WorkerSpec
from holdfast.wire import Assigned, Meeting, Message, Met, Reported

ENTRY = "holdfast.testing.workers:obey"
PATIENCE_S = 120.0  # long, because the machine may be busy
PAUSE_S = 0.003  # between two looks while a test waits


def start(engine: Engine, logs: Path, *orders: str, group: int = 1) -> None:
    """Start a group with one worker for each order."""
    nodes = engine.nodes()
    engine.start_group(
        group,
        [
            WorkerSpec(
                rank=rank,
                node=nodes[rank % len(nodes)].name,
                log=str(log_of(logs, rank, group)),
                first=Assigned(order.encode()),
                environment={"RANK_OF_WORKER": str(rank)},
            )
            for rank, order in enumerate(orders)
        ],
    )


def log_of(logs: Path, rank: int, group: int = 1) -> Path:
    """Return the log of a worker that `start` started."""
    return logs / f"group-{group}" / f"rank-{rank}.log"


def said(engine: Engine) -> Said:
    """Return the next message, which must come before any end."""
    event = engine.next_event(PATIENCE_S)
    assert isinstance(event, Said), event
    return event


def reports(engine: Engine, count: int) -> list[dict[str, Any]]:
    """Return the metrics of the next `count` reports, skipping all other events."""
    metrics: list[dict[str, Any]] = []
    while len(metrics) < count:
        event = engine.next_event(PATIENCE_S)
        assert event is not None, "a worker sends nothing"
        if isinstance(event, Said) and isinstance(event.message, Reported):
            metrics.append(event.message.metrics)
    return metrics


def ends(engine: Engine, count: int) -> dict[int, Ended]:
    """Return the ends of `count` workers by rank, skipping all other events."""
    by_rank: dict[int, Ended] = {}
    while len(by_rank) < count:
        event = engine.next_event(PATIENCE_S)
        assert event is not None, f"only {sorted(by_rank)} have ended"
        if isinstance(event, Ended):
            assert event.exit.rank not in by_rank, "a worker ended twice"
            by_rank[event.exit.rank] = event
    return by_rank


def stacks_with(engine: Engine, *places: str, group: int = 1) -> Mapping[int, str]:
    """Return the stacks of workers once those of rank 0 contain all `places`."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        stacks = engine.stacks(group)
        if all(place in stacks[0] for place in places):
            return stacks
        assert time.monotonic() < deadline, stacks[0]
        time.sleep(PAUSE_S)


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    return state_of(pid) not in ("", "Z")


def state_of(pid: int) -> str:
    """Return the letter for the state of a process, as `ps` shows it, "" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def memory_of(pid: int) -> int:
    """Return how many bytes of memory a process uses that belong to no file."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


class EngineSuite:
    """The contract of `holdfast.engine.base.Engine`."""

    def test_there_is_a_node_with_room(self, engine: Engine) -> None:
        first, *_ = engine.nodes()

        assert first.room["CPU"] > 0
        assert first.leaves is None

    def test_a_node_can_be_reached(self, engine: Engine) -> None:
        assert all(node.address for node in engine.nodes())

    def test_room_that_nobody_else_wants_is_reserved_at_once(self, engine: Engine) -> None:
        demand = Demand(each={"CPU": 1.0})

        assert engine.reserve(demand, 1, 1)
        assert engine.reserve(demand, 1, 1)  # again is no error
        assert engine.nodes()[0].room["CPU"] >= 1

    def test_a_group_starts_after_a_warm_up(self, engine: Engine, tmp_path: Path) -> None:
        engine.warm_up()
        engine.warm_up()
        start(engine, tmp_path, "")

        assert isinstance(ends(engine, 1)[0].exit, Finished)

    def test_a_worker_that_nobody_started_has_an_empty_log(self, engine: Engine) -> None:
        log = engine.log(7, 0)

        assert (log.size_bytes(), log.read(0, 100)) == (0, b"")
        log.close()

    def test_a_worker_that_returns_has_finished(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "")

        ended = ends(engine, 1)[0]

        assert isinstance(ended.exit, Finished)
        assert ended.words is not None
        assert ended.words.value == b"done"

    def test_everything_a_worker_said_comes_before_its_end(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "report=500")

        messages = [said(engine).message for _ in range(500)]
        last = engine.next_event(PATIENCE_S)

        indexes = [message.index for message in messages if isinstance(message, Reported)]
        assert indexes == [*range(500)]
        assert isinstance(last, Ended)
        assert isinstance(last.exit, Finished)

    def test_a_message_for_a_group_that_is_over_is_lost(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "")
        ends(engine, 1)
        start(engine, tmp_path, "echo", group=2)

        engine.send(1, 0, Met(1))
        engine.send(2, 5, Met(2))
        engine.send(2, 0, Met(3))

        assert said(engine).message == Meeting(3)
        engine.stop_group(2)

    def test_a_worker_that_was_stopped_was_evicted(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "report=1 echo")
        reports(engine, 1)

        engine.stop_group(1)
        engine.stop_group(1)  # again is no error
        engine.stop_group(7)  # nor is one that never was

        assert isinstance(ends(engine, 1)[0].exit, Evicted)

    def test_groups_follow_each_other(self, engine: Engine, tmp_path: Path) -> None:
        for group in range(1, 4):
            start(engine, tmp_path, "report=1", group=group)
            assert ends(engine, 1)[0].group == group

    def test_nothing_happens_in_time_if_nothing_happens(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        assert engine.next_event(0.0) is None
        start(engine, tmp_path, "echo")

        assert engine.next_event(0.05) is None

    def test_stacks_show_where_a_worker_is(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "echo")

        stacks = stacks_with(engine, "in _echo")

        assert list(stacks) == [0]
        assert engine.stacks(2) == {}

    def test_a_wake_comes_through_whether_something_runs_or_not(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        engine.wake()
        engine.wake()
        assert engine.next_event(None) is None  # would wait for ever
        assert engine.next_event(0.0) is None

        start(engine, tmp_path, "echo")
        engine.wake()
        assert engine.next_event(None) is None

    def test_a_wake_from_another_thread_ends_the_wait(self, engine: Engine) -> None:
        thread = threading.Timer(0.05, engine.wake)
        thread.start()

        assert engine.next_event(None) is None
        thread.join()

    def test_a_wake_loses_no_event(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "report=100 echo")
        engine.wake()

        heard = 0
        deadline = time.monotonic() + PATIENCE_S
        while heard < 100 and time.monotonic() < deadline:
            heard += isinstance(engine.next_event(0.1), Said)

        assert heard == 100


class RealEngineSuite(EngineSuite):
    """What must also be true if workers are not simulated."""

    def test_a_worker_finds_its_environment(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "environment=RANK_OF_WORKER")

        assert reports(engine, 1) == [{"value": "0"}]


class ProcessEngineSuite(RealEngineSuite):
    """What must also be true if each worker is a process of its own."""

    def test_each_way_to_die_is_told_apart(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "exit=0", "exit=7", "signal=9", "print=hello signal=11")

        exits = [ended.exit for _, ended in sorted(ends(engine, 4).items())]

        deaths = [death for death in exits if isinstance(death, Died)]
        codes = [(death.exit_code, death.signal) for death in deaths]
        assert codes == [(0, None), (7, None), (None, 9), (None, 11)]
        assert not any(death.out_of_memory for death in deaths)

    def test_the_last_lines_of_one_that_was_killed_are_known(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "print=first print=last signal=9")

        ended = ends(engine, 1)[0].exit

        assert isinstance(ended, Died)
        assert ended.last_lines == ("first", "last")

    def test_a_worker_prints_to_its_own_log(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "print=zero", "mumble=one")
        ends(engine, 2)

        assert log_of(tmp_path, 0).read_text() == "zero\n"
        assert log_of(tmp_path, 1).read_text() == "one"

    def test_a_log_is_read_as_it_grows_and_after_the_end(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "print=first report=1 echo print=last")
        log = engine.log(1, 0)
        reports(engine, 1)
        before = log.read(0, 100)
        engine.send(1, 0, Met(-1))  # go on
        ends(engine, 1)

        assert before == b"first\n"
        assert (log.size_bytes(), log.read(6, 3), log.read(11, 9)) == (11, b"las", b"")
        assert "rank-0.log" in log.where
        log.close()

    def test_the_last_lines_are_of_the_log_that_a_later_job_prints_to(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        """As in a process that does one trial after another."""
        start(engine, tmp_path, "print=first report=1 reassigned print=last signal=9")
        reports(engine, 1)
        engine.send(1, 0, Assigned(b"", log=str(log_of(tmp_path, 0, group=2))))

        ended = ends(engine, 1)[0].exit

        assert isinstance(ended, Died)
        assert ended.last_lines == ("last",)

    def test_a_log_that_cannot_be_written_leaves_nothing_running(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        log_of(tmp_path, 1).mkdir(parents=True)

        with pytest.raises(EngineError, match=r"rank-1\.log: Is a directory") as caught:
            start(engine, tmp_path, "report=1 hang", "hang")

        assert caught.value.hint
        assert engine.next_event(0.1) is None
        start(engine, tmp_path, "", group=2)
        assert isinstance(ends(engine, 1)[0].exit, Finished)

    def test_a_worker_that_does_not_listen_holds_nobody_up(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "report=1 hang", "echo")
        reports(engine, 1)

        for index in range(64):
            engine.send(1, 0, Met(index, data=bytes(1 << 20)))
        engine.send(1, 1, Met(64))

        assert said(engine).message == Meeting(64)

    def test_a_worker_that_nobody_listens_to_waits(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "report=1 flood=200", "report=1 hang")
        pids: dict[int, int] = {}
        messages: list[Message] = []
        while len(pids) < 2:
            event = said(engine)
            if isinstance(event.message, Reported):
                pids[event.rank] = event.message.metrics["pid"]
            else:
                messages.append(event.message)
        floods, idles = pids[0], pids[1]
        deadline = time.monotonic() + PATIENCE_S
        while state_of(floods) != "S" and time.monotonic() < deadline:
            time.sleep(PAUSE_S)

        held = memory_of(floods) - memory_of(idles)
        messages += [said(engine).message for _ in range(200 - len(messages))]

        assert held < 60 << 20
        indexes = [message.index for message in messages if isinstance(message, Meeting)]
        assert indexes == [*range(200)]

    def test_no_worker_of_a_stopped_group_runs(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "report=1 hang", "report=1 deaf hang")
        pids = {metrics["pid"] for metrics in reports(engine, 3) if "pid" in metrics}

        engine.stop_group(1)

        assert not any(is_running(pid) for pid in pids)
        assert all(isinstance(ended.exit, Evicted) for ended in ends(engine, 2).values())

    def test_a_worker_is_asked_to_end_before_it_is_killed(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "report=1 hang", "report=1 deaf hang")
        reports(engine, 3)

        began = time.monotonic()
        engine.stop_group(1, grace_s=0.3)

        assert time.monotonic() - began >= 0.3  # for the sake of the one that is deaf
        assert all(isinstance(ended.exit, Evicted) for ended in ends(engine, 2).values())

    def test_a_grace_period_ends_with_the_last_worker(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "hang", "hang")

        # At once: workers may not have set up signals yet. A day is longer than any test may take.
        engine.stop_group(1, grace_s=86_400.0)

        assert all(isinstance(ended.exit, Evicted) for ended in ends(engine, 2).values())

    @pytest.mark.parametrize("way", ["child", "stranger", "daemon"])
    def test_what_a_worker_started_goes_with_it(
        self, engine: Engine, tmp_path: Path, way: str
    ) -> None:
        start(engine, tmp_path, f"{way} echo signal=9", f"{way} echo")
        started = {}
        for _ in range(2):
            event = said(engine)
            assert isinstance(event.message, Reported)
            started[event.rank] = event.message.metrics["child"]

        engine.send(1, 0, Met(-1))  # go on
        assert list(ends(engine, 1)) == [0]
        after_one = {rank: is_running(pid) for rank, pid in started.items()}
        engine.stop_group(1)

        assert after_one == {0: False, 1: True}  # that of the other worker is not touched
        assert not is_running(started[1])

    def test_a_sleeping_process_can_be_ended(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "report=1 hang")
        pid = reports(engine, 1)[0]["pid"]
        os.kill(pid, signal.SIGSTOP)

        engine.stop_group(1, grace_s=0.05)

        assert not is_running(pid)

    def test_a_new_worker_finds_signals_as_any_process_does(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        start(engine, tmp_path, "signals")

        assert reports(engine, 1) == [{"odd": [], "blocked": []}]

    def test_a_worker_holds_its_own_line_and_no_other(self, engine: Engine, tmp_path: Path) -> None:
        start(engine, tmp_path, "files", "files", "files")

        for metrics in reports(engine, 3):
            kinds = [name.partition(":")[0] for name in metrics["files"].values()]
            assert kinds.count("socket") == 1, metrics
            assert not kinds.count("anon_inode"), metrics  # a selector of another process

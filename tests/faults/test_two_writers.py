"""Two drivers on one run, real processes: they race, are stopped and woken, are killed."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.control.record.litter import find_litter, sweep
from holdfast.control.record.open_run import OpenRun, open_run
from holdfast.storage.local.store import LocalStore
from tests.faults import writer
from tests.faults.run_state import state_of


class Writer:
    """A driver in a process of its own, and what it has said so far."""

    def __init__(self, root: Path, *how: object, is_patient: bool = False) -> None:
        command = [sys.executable, "-m", "tests.faults.writer", str(root), *map(str, how)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.said: list[str] = []
        assert self.process.stdin is not None
        self.process.stdin.write("wait\n" if is_patient else "go\n")
        self.process.stdin.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        """Return the next line, an empty one if the process has said all it ever will."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if line:
            self.said.append(line)
        return line

    def hear_until(self, word: str) -> str:
        while line := self.hear():
            if line.startswith(word):
                return line
        pytest.fail(f"never said {word!r}, only {self.said}")

    def hear_out(self) -> int:
        """Hear everything there is to hear, and return how the process ended."""
        while self.hear():
            continue
        return self.process.wait()

    def wait_until_stopped(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def acknowledged(self) -> list[int]:
        return [int(line.split()[1]) for line in self.said if line.startswith("ack ")]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def writing(root: Path, *how: object, is_patient: bool = False) -> Iterator[Writer]:
    one = Writer(root, *how, is_patient=is_patient)
    try:
        yield one
    finally:
        one.end()


def test_a_second_driver_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    root = tmp_path / "run"
    with writing(root, 3600, 3, "SIGSTOP", 5) as first:
        first.hear_until("open")
        first.wait_until_stopped()
        with writing(root, 3600, 3) as second:
            code = second.hear_out()

    assert code == 3
    assert len(second.said) == 1
    assert re.search(rf"held by \S+ \(pid {first.pid}\), lease renewed \d+ s ago", second.said[0])


def test_of_drivers_that_start_at_once_one_gets_the_run(tmp_path: Path) -> None:
    root = tmp_path / "run"
    with writing(root, 3600, 2) as a, writing(root, 3600, 2) as b, writing(root, 3600, 2) as c:
        ends = [one.hear_out() for one in (a, b, c)]

    opened = [one for one in (a, b, c) if one.said[0].startswith("open")]
    assert set(ends) <= {0, 3}
    epochs = sorted(int(one.said[0].split()[1]) for one in opened)
    assert epochs == list(range(1, len(opened) + 1)), "two drivers had one epoch"
    numbers = [number for one in opened for number in one.acknowledged()]
    assert sorted(numbers) == list(range(2 * len(opened))), "a number was given out twice"


@pytest.mark.parametrize("write", [1, 4, 9, 16, 25, 36, 49, 64])
def test_a_driver_that_was_stopped_and_woken_after_a_takeover_changes_nothing(
    tmp_path: Path, write: int
) -> None:
    """SIGSTOP before any write of its commits, retention and compaction; SIGCONT much later."""
    root = tmp_path / "run"
    with writing(root, 0.3, 1000, "SIGSTOP", write) as zombie:
        zombie.hear_until("open 1")
        zombie.wait_until_stopped()
        with writing(root, 3600, 3, is_patient=True) as successor:
            assert successor.hear_out() == 0
        before = state_of(LocalStore(root))

        zombie.process.send_signal(signal.SIGCONT)
        code = zombie.hear_out()

    assert code == 4, zombie.said
    assert "was taken over by" in zombie.said[-1]
    assert state_of(LocalStore(root)) == before
    assert set(successor.acknowledged()) <= before.record.kept.keys()
    with open_run(LocalStore(root)) as third:
        assert third.record.kept == before.record.kept


@pytest.mark.parametrize("seed", range(5))
def test_a_driver_killed_at_any_moment_loses_nothing_and_is_replaced_at_once(
    tmp_path: Path, seed: int
) -> None:
    """The lease would last for an hour: whoever comes next sees that its holder is dead."""
    root, moments = tmp_path / "run", random.Random(seed)
    acknowledged: list[int] = []
    for epoch in range(1, 6):
        with writing(root, 3600, 1000, "SIGKILL", moments.randint(1, 150)) as driver:
            code = driver.hear_out()
        assert code == -signal.SIGKILL
        assert driver.said[0] == f"open {epoch}"
        acknowledged += driver.acknowledged()

    assert acknowledged == sorted(set(acknowledged)), "a number was given out twice"
    with open_run(LocalStore(root)) as run:
        newest = run.newest_good()
        assert newest is not None and newest.number >= acknowledged[-1]
        assert set(acknowledged[-writer.KEEP :]) <= {kept.number for kept in run.record.usable()}
        assert run.record.quarantined() == []
        assert run.journal.damages == []
        sweep(run)
        assert find_litter(run.store, run.identity.run_id, run.record) == []
        assert_contents(run)


def assert_contents(run: OpenRun) -> None:
    for kept in run.record.usable():
        for rank in range(writer.RANKS):
            for name, data in writer.contents(kept.number, rank, kept.epoch).items():
                assert run.store.get(f"{kept.directory}/{name}").data == data

"""Every engine we ship, under the suite that we ship."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.outcomes import Died, Finished
from holdfast.engine.base import Engine
from holdfast.engine.local import LocalEngine
from holdfast.testing.suites.engine import ENTRY, EngineSuite, ends, is_running, said, start


class TestLocal(EngineSuite):
    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        engine = LocalEngine(ENTRY, node_count=2)
        yield engine
        engine.close()


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    engine = LocalEngine(ENTRY, node_count=2)
    yield engine
    engine.close()


def test_a_lost_node_takes_its_workers_with_it(engine: LocalEngine, tmp_path: Path) -> None:
    start(engine, tmp_path, "hang", "hang", "hang", "hang")

    engine.fail_node("node-1")
    lost = ends(engine, 2)
    engine.stop_group(1)

    assert sorted(lost) == [1, 3]
    assert all(isinstance(one.exit, Died) and one.exit.node_lost for one in lost.values())


def test_the_loss_of_the_zygote_costs_one_group(engine: LocalEngine, tmp_path: Path) -> None:
    start(engine, tmp_path, "report=1 hang")
    pid = said(engine).message.metrics["pid"]  # type: ignore[union-attr]
    zygote = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    os.kill(zygote, signal.SIGKILL)
    lost = ends(engine, 1)[0].exit
    start(engine, tmp_path, "", attempt=2)

    assert isinstance(lost, Died)
    assert not is_running(pid)
    assert isinstance(ends(engine, 1)[0].exit, Finished)


DRIVER = """
import sys
from pathlib import Path
from holdfast.engine.local import LocalEngine
from holdfast.testing.suites.engine import ENTRY, said, start
engine = LocalEngine(ENTRY)
start(engine, Path(sys.argv[1]), "report=1 child hang", "report=1 deaf child hang")
seen = [said(engine).message.metrics for _ in range(5)]
print(*(pid for one in seen for name, pid in one.items() if name != "deaf"), flush=True)
sys.stdin.read()
"""


def test_nothing_outlives_a_driver_that_is_killed(tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 4
    assert all(is_running(pid) for pid in pids)

    driver.kill()
    driver.wait()
    driver.stdout.read()  # to the end: whoever inherited it is gone too
    for pid in pids:
        while is_running(pid):
            os.sched_yield()
    driver.communicate()

"""Nothing outlives who started it: workers their driver, what workers started the workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from holdfast.core.run.outcomes import Died, Evicted, Finished
from holdfast.engine import processes
from holdfast.engine.base import Engine, EngineError
from holdfast.engine.local import engine as local
from holdfast.engine.local import worker
from holdfast.engine.local.engine import LocalEngine
from holdfast.engine.local.zygote_line import Start
from holdfast.testing.suites.engine import ends, is_running, reports, start, state_of
from tests.conformance.engine_host import EngineHost
from tests.patience import pause

WAYS = ("spawn", "fork")


def wait_until_gone(pids: Iterable[int]) -> None:
    for pid in pids:
        while is_running(pid):
            pause()


def started_by(engine: Engine, tmp_path: Path) -> list[int]:
    """Start two workers that start whatever can be started, and return all processes."""
    everything = "report=1 child stranger daemon"
    start(engine, tmp_path, f"{everything} hang", f"{everything} deaf hang")
    seen = [one for one in reports(engine, 9) if "deaf" not in one]
    pids = [pid for one in seen for pid in one.values()]
    assert len(pids) == 8
    assert all(is_running(pid) for pid in pids)
    return pids


def zygote_of(engine: Engine, tmp_path: Path) -> int:
    start(engine, tmp_path, "parent", group=99)
    [told] = reports(engine, 1)
    ends(engine, 1)
    return int(told["parent"])


@pytest.mark.req("T-067")
@pytest.mark.parametrize("way", WAYS)
def test_nothing_outlives_a_driver_that_is_killed(
    host: EngineHost, tmp_path: Path, way: Start
) -> None:
    host.new(way)
    zygote = zygote_of(host, tmp_path)
    pids = started_by(host, tmp_path)

    host.kill()

    wait_until_gone([*pids, zygote])


@pytest.mark.parametrize("way", WAYS)
def test_nothing_outlives_a_driver_whose_children_do(
    host: EngineHost, tmp_path: Path, way: Start
) -> None:
    """Such a child has the driver's sockets open, so that their end is not to be seen."""
    host.new(way)
    zygote = zygote_of(host, tmp_path)
    pids = started_by(host, tmp_path)
    program = "import os, signal\nanswer = os.fork()\nif not answer: signal.pause()"
    child = host.execute(program)
    try:
        host.kill()
        wait_until_gone([*pids, zygote])

        assert is_running(child)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_outlives_a_driver_whose_zygote_sleeps(
    host: EngineHost, tmp_path: Path, way: Start
) -> None:
    host.new(way)
    zygote = zygote_of(host, tmp_path)
    pids = started_by(host, tmp_path)
    os.kill(zygote, signal.SIGSTOP)
    while state_of(zygote) != "T":
        pause()

    host.kill()

    wait_until_gone([*pids, zygote])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("killed", [("driver", "zygote"), ("driver", "keeper")])
def test_nothing_outlives_a_driver_that_is_killed_with_another(
    host: EngineHost, tmp_path: Path, way: Start, killed: tuple[str, ...]
) -> None:
    """As `pkill -9 -f script.py` does: a zygote that was forked is named like its driver."""
    host.new(way)
    zygote = zygote_of(host, tmp_path)
    keeper = processes.facts(zygote).parent
    pids = started_by(host, tmp_path)
    known = {"driver": host.pid, "zygote": zygote, "keeper": keeper}

    for name in killed:
        os.kill(known[name], signal.SIGKILL)
    host.kill()

    wait_until_gone([*pids, zygote, keeper])


@pytest.mark.parametrize("way", WAYS)
def test_a_driver_goes_on_whose_zygote_and_keeper_are_killed(
    host: EngineHost, tmp_path: Path, way: Start
) -> None:
    host.new(way)
    zygote = zygote_of(host, tmp_path)
    start(host, tmp_path, "report=1 child stranger hang")
    pids = [pid for one in reports(host, 3) for pid in one.values()]

    for pid in (processes.facts(zygote).parent, zygote):
        os.kill(pid, signal.SIGKILL)

    assert isinstance(ends(host, 1)[0].exit, Died)
    assert not any(is_running(pid) for pid in [*pids, zygote])
    start(host, tmp_path, "", group=2)
    assert isinstance(ends(host, 1)[0].exit, Finished)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_outlives_a_driver_that_is_killed_while_zygote_and_keeper_sleep(
    host: EngineHost, tmp_path: Path, way: Start
) -> None:
    host.new(way)
    zygote = zygote_of(host, tmp_path)
    keeper = processes.facts(zygote).parent
    pids = started_by(host, tmp_path)
    for pid in (keeper, zygote):
        os.kill(pid, signal.SIGSTOP)
        while state_of(pid) != "T":
            pause()

    host.kill()

    wait_until_gone([*pids, zygote, keeper])


@pytest.mark.parametrize("way", WAYS)
def test_who_kills_by_the_name_of_a_script_spares_the_keeper(
    host: EngineHost, tmp_path: Path, way: Start
) -> None:
    host.new(way)
    zygote = zygote_of(host, tmp_path)
    keeper = processes.facts(zygote).parent

    assert Path(f"/proc/{keeper}/cmdline").read_bytes().strip(b"\0") == b"holdfast-keeper"
    assert Path(f"/proc/{keeper}/comm").read_text() == "holdfast-keeper\n"
    assert b"holdfast-keeper" not in Path(f"/proc/{zygote}/cmdline").read_bytes()


def test_signals_for_all_do_not_reach_the_zygote(engine: LocalEngine, tmp_path: Path) -> None:
    """A terminal that is closed signals to its group, and some schedulers to all of a job's."""
    zygote = zygote_of(engine, tmp_path)

    for name in ("SIGHUP", "SIGTERM", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
        for pid in (zygote, processes.facts(zygote).parent):
            os.kill(pid, signal.Signals[name])
    start(engine, tmp_path, "")

    assert isinstance(ends(engine, 1)[0].exit, Finished)
    assert os.getsid(zygote) == zygote
    assert zygote_of(engine, tmp_path) == zygote


@pytest.mark.parametrize("ends_with", ["the worker", "the zygote"])
def test_shared_memory_does_not_outlive_a_worker_that_is_killed(
    engine: LocalEngine, tmp_path: Path, ends_with: str
) -> None:
    """What is named does not go with a process, but those go last who were asked to remove it."""
    zygote = zygote_of(engine, tmp_path)
    start(engine, tmp_path, "share report=1 child hang")
    shared, worker, _ = reports(engine, 3)
    segment = Path("/dev/shm", shared["segment"])
    assert segment.exists()

    os.kill(worker["pid"] if ends_with == "the worker" else zygote, signal.SIGKILL)
    ends(engine, 1)

    assert not segment.exists()


@pytest.mark.parametrize("way", WAYS)
def test_the_loss_of_the_zygote_costs_one_group(
    host: EngineHost, tmp_path: Path, way: Start
) -> None:
    host.new(way)
    zygote = zygote_of(host, tmp_path)
    everything = "report=1 child stranger"
    start(host, tmp_path, f"{everything} hang", f"{everything} deaf hang")
    pids = [pid for one in reports(host, 7) for name, pid in one.items() if name != "deaf"]

    os.kill(zygote, signal.SIGKILL)
    lost = ends(host, 2)
    left = [pid for pid in pids if is_running(pid)]
    start(host, tmp_path, "", group=2)

    assert all(isinstance(one.exit, Died) for one in lost.values())
    assert not left
    assert isinstance(ends(host, 1)[0].exit, Finished)


def test_a_zygote_that_does_not_answer_does_not_hold_up_a_stop(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "KILL_PATIENCE_S", 0.2)
    zygote = zygote_of(engine, tmp_path)
    start(engine, tmp_path, "report=1 child hang")
    pids = [pid for one in reports(engine, 2) for pid in one.values()]
    os.kill(zygote, signal.SIGSTOP)

    engine.stop_group(1)

    assert not any(is_running(pid) for pid in [*pids, zygote])
    assert isinstance(ends(engine, 1)[0].exit, Evicted)
    start(engine, tmp_path, "", group=2)
    assert isinstance(ends(engine, 1)[0].exit, Finished)


def test_a_worker_that_ends_is_missed_also_if_its_zygote_sleeps(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zygote = zygote_of(engine, tmp_path)
    start(engine, tmp_path, "report=1 hang", "report=1 hang")
    one, other = [told["pid"] for told in reports(engine, 2)]
    os.kill(zygote, signal.SIGSTOP)
    while state_of(zygote) != "T":
        pause()
    monkeypatch.setattr(worker, "END_PATIENCE_S", 0.0)

    os.kill(one, signal.SIGKILL)

    assert all(isinstance(lost.exit, Died) for lost in ends(engine, 2).values())
    assert not any(is_running(pid) for pid in (one, other, zygote))


def test_a_zygote_that_does_not_answer_does_not_hold_up_a_start(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zygote = zygote_of(engine, tmp_path)
    os.kill(zygote, signal.SIGSTOP)
    while state_of(zygote) != "T":
        pause()
    monkeypatch.setattr(local, "START_TIMEOUT_S", 0.3)

    with pytest.raises(EngineError, match=r"2 of 2 workers .*: the zygote did not answer"):
        start(engine, tmp_path, "report=1", "report=1")

    assert not is_running(zygote)
    assert engine.next_event(0.1) is None
    monkeypatch.undo()
    start(engine, tmp_path, "", group=2)
    assert isinstance(ends(engine, 1)[0].exit, Finished)


def test_a_closed_engine_leaves_no_process_and_no_open_file(
    host: EngineHost, tmp_path: Path
) -> None:
    look = """
import os, psutil
answer = psutil.Process().children(), len(os.listdir("/proc/self/fd"))
"""
    host.execute(look)  # importing opens and closes things
    before = host.execute(look)

    for way in ("fork", "spawn"):
        host.new(way)
        start(host, tmp_path, "report=1 hang", "raise=ValueError", "signal=9")
        ends(host, 2)
        host.stacks(1)
        host.close()

    assert host.execute(look) == before
    assert before[0] == []


PIPED = """
import sys
from pathlib import Path
from holdfast.engine.local.engine import LocalEngine
from holdfast.testing.suites.engine import ENTRY, reports, start
engine = LocalEngine(ENTRY, start=sys.argv[2])
start(engine, Path(sys.argv[1]), "report=1 child hang")
reports(engine, 2)
print("begun", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("way", WAYS)
def test_whoever_reads_what_a_driver_prints_sees_its_end(tmp_path: Path, way: str) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", PIPED, str(tmp_path), way],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "begun\n"

    driver.kill()

    assert driver.communicate()[0] == ""  # would wait for a process that still has it open

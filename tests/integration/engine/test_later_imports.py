"""What can wait is imported while workers run, and nobody who wants something waits for it long."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast.channel import Channel
from holdfast.core.run.outcomes import Died, Finished
from holdfast.engine.base import WorkerSpec
from holdfast.engine.local import zygote_line
from holdfast.engine.local.engine import LocalEngine
from holdfast.engine.local.worker import new_worker
from holdfast.engine.local.zygote_line import ZygoteLine
from holdfast.engine.nodes import LocalNodes
from holdfast.testing.suites.engine import ENTRY, ends, is_running, reports, start
from holdfast.wire import Assigned, LastWords, Message, Reported
from tests.patience import pause

NOTES = (
    "import os, pathlib; pathlib.Path(__file__).with_suffix('.pid').write_text(str(os.getpid()))"
)
WAITS = f"{NOTES}; open(pathlib.Path(__file__).with_suffix('.gate')).read()"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have the quiet moment come at once, and modules be found in the folder of the test."""
    monkeypatch.setattr(zygote_line, "LATER_AFTER_S", 0.0)
    monkeypatch.syspath_prepend(tmp_path)


@contextmanager
def an_engine(*later: str, nodes: LocalNodes | None = None) -> Iterator[LocalEngine]:
    engine = LocalEngine(ENTRY, (), nodes, start="spawn", later=later)
    try:
        yield engine
    finally:
        engine.close()


def module(folder: Path, name: str, code: str = NOTES) -> Path:
    """Make a module; return the file that is there once it is being imported, with a number."""
    (folder / f"{name}.py").write_text(code)
    if code == WAITS:
        os.mkfifo(folder / f"{name}.gate")
    return folder / f"{name}.pid"


def read(path: Path) -> int:
    """Return the number in a file, once it is there."""
    while not (path.exists() and path.read_text()):
        pause()
    return int(path.read_text())


def test_what_can_wait_is_there_for_later_workers_and_not_waited_for_by_the_first(
    tmp_path: Path,
) -> None:
    noted = module(tmp_path, "later_module")
    with an_engine("later_module") as engine:
        engine.warm_up()
        start(engine, tmp_path, "module=later_module parent hang")
        before, first = reports(engine, 2)
        importer = read(noted)
        start(engine, tmp_path, "module=later_module", group=2)

        assert before == {"loaded": False}
        assert importer == first["parent"]
        assert reports(engine, 1) == [{"loaded": True}]


def test_a_worker_that_is_wanted_meanwhile_waits_for_one_module_and_not_for_all(
    tmp_path: Path,
) -> None:
    first = module(tmp_path, "slow_module", WAITS)
    module(tmp_path, "later_module")
    line = ZygoteLine([], "spawn", later=["slow_module", "later_module"])
    try:
        with closing(forked(line, tmp_path, "")):
            read(first)
        with closing(forked(line, tmp_path, "module=slow_module module=later_module")) as wanted:
            (tmp_path / "slow_module.gate").write_text("")
            heard: list[Message] = []
            while not heard or not isinstance(heard[-1], LastWords):
                heard += wanted.wait()

        told = [one.metrics for one in heard if isinstance(one, Reported)]
        assert told == [{"loaded": True}, {"loaded": False}]
    finally:
        line.close()


def forked(line: ZygoteLine, folder: Path, words: str) -> Channel:
    """Ask a zygote for a worker; return what it will be heard by."""
    worker, handles = new_worker(1, WorkerSpec(rank=0, node="node-0", log=str(folder / "log")))
    worker.channel.send(Assigned(words.encode()))
    line.fork(0, "node-0", ENTRY, {}, handles)
    handles.close()
    return worker.channel


def test_what_is_to_be_ended_and_what_ends_does_not_wait_for_an_import(tmp_path: Path) -> None:
    importing = module(tmp_path, "slow_module", WAITS)
    nodes = LocalNodes(2)
    with an_engine("slow_module", nodes=nodes) as engine:
        start(engine, tmp_path, "report=1 hang")
        reports(engine, 1)
        read(importing)
        nodes.fail("node-0")
        lost = ends(engine, 1)[0].exit

        assert isinstance(lost, Died)
        assert lost.node_lost
        (tmp_path / "slow_module.gate").write_text("")
        start(engine, tmp_path, "module=slow_module", group=2)
        assert reports(engine, 1) == [{"loaded": True}]


@pytest.mark.parametrize("fault", ["raise SystemExit(3)", "raise KeyboardInterrupt", "1 / 0", "("])
def test_what_cannot_be_imported_costs_no_worker_and_nothing_is_said(
    fault: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    module(tmp_path, "faulty_module", fault)
    noted = module(tmp_path, "later_module")
    with an_engine("no_such_module", "faulty_module", "later_module") as engine:
        start(engine, tmp_path, "report=1 hang")
        pid = reports(engine, 1)[0]["pid"]
        read(noted)

        assert is_running(pid)
        start(engine, tmp_path, "module=later_module", group=2)
        assert reports(engine, 1) == [{"loaded": True}]
    assert capfd.readouterr().err == ""


def test_a_module_that_ends_the_zygote_costs_one_group_and_not_every_later_one(
    tmp_path: Path,
) -> None:
    noted = module(tmp_path, "deadly_module", f"{NOTES}; os.kill(os.getpid(), 9)")
    with an_engine("deadly_module") as engine:
        start(engine, tmp_path, "hang")
        lost = ends(engine, 1)[0].exit
        killed = read(noted)
        start(engine, tmp_path, "parent", group=2)

        assert isinstance(lost, Died)
        assert reports(engine, 1)[0]["parent"] != killed
        assert isinstance(ends(engine, 1)[0].exit, Finished)
        assert read(noted) == killed


DRIVER = """
import sys
from pathlib import Path
from holdfast.engine.local import zygote_line
from holdfast.engine.local.engine import LocalEngine
from holdfast.testing.suites.engine import ENTRY, reports, start
zygote_line.LATER_AFTER_S = 0.0
sys.path.insert(0, sys.argv[1])
engine = LocalEngine(ENTRY, start=sys.argv[2], later=["slow_module"])
start(engine, Path(sys.argv[1]), "report=1 child hang")
print(*(pid for one in reports(engine, 2) for pid in one.values()), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_nothing_outlives_a_driver_that_is_killed_while_the_zygote_imports(
    tmp_path: Path, way: str
) -> None:
    noted = module(tmp_path, "slow_module", WAITS)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path), way],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    pids.append(read(noted))

    driver.kill()
    driver.wait()
    driver.communicate()

    assert len(pids) == 3
    for pid in pids:
        while is_running(pid):
            pause()


def test_a_zygote_that_imports_does_not_outlive_its_driver(tmp_path: Path) -> None:
    """Before the first worker, when all it does is import."""
    noted = module(tmp_path, "slow_module", WAITS)
    program = (
        "import sys; from holdfast.engine.local.zygote_line import ZygoteLine;"
        " sys.path.insert(0, sys.argv[1]); line = ZygoteLine(['slow_module'], 'spawn');"
        " sys.stdin.read()"
    )
    driver = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE)
    zygote = read(noted)

    driver.kill()
    driver.communicate()

    while is_running(zygote):
        pause()

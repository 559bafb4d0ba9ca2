"""What the machine will not give: processes, memory; and what it gives plenty of: files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.core.run.outcomes import Died, Finished
from holdfast.engine.base import EngineError
from holdfast.engine.local.memory_kills import counter_files
from holdfast.engine.local.zygote_line import Start
from holdfast.testing.suites.engine import (
    ends,
    is_running,
    log_of,
    reports,
    said,
    stacks_with,
    start,
)
from holdfast.wire import Meeting, Met, Reported
from tests.conformance.engine_host import EngineHost
from tests.patience import pause

MIB = 1 << 20


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_files_may_have_numbers_over_a_thousand(
    host: EngineHost, tmp_path: Path, way: Start
) -> None:
    most = host.execute(
        "import os, resource\n"
        "_, most = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n"
        "answer = most\n"
    )
    if most < 2000:
        pytest.skip("this machine gives a process too few files")
    host.execute("opened = [open(os.devnull) for _ in range(1500)]\nanswer = opened[-1].fileno()")
    host.new(way)
    start(host, tmp_path, "files echo", "flood=3 echo")
    host.send(1, 0, Met(1, data=bytes(MIB)))

    heard = [said(host).message for _ in range(5)]

    [told] = [one.metrics for one in heard if isinstance(one, Reported)]
    assert len([one for one in heard if isinstance(one, Meeting)]) == 4
    assert "in _echo" in stacks_with(host, "in _echo")[0]
    highest = max(int(number) for number in told["files"])
    assert (highest > 1500) == (way == "fork")


NOBODY = 65534
DROP_PRIVILEGES = f"""
import ctypes, os, resource, holdfast.testing.workers
if os.getuid() == 0:
    os.setgroups([])
    os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
    os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # or /proc/self would still be root's
"""


@pytest.fixture
def nobodys_folder() -> Iterator[Path]:
    """A folder that nobody may write to: pytest's own are for the one who runs it."""
    folder = Path(tempfile.mkdtemp())
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def tasks_of(uid: int) -> int:
    """Return how many threads there are of a user's processes."""
    count = 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if process.stat().st_uid == uid:
                    count += len([*(process / "task").iterdir()])
            except FileNotFoundError:
                continue
    return count


def test_a_group_that_cannot_be_forked_whole_is_not_started(
    host: EngineHost, nobodys_folder: Path
) -> None:
    """To root there is no limit on processes, so this is done as nobody."""
    host.new("fork")
    logs = nobodys_folder
    start(host, logs / "first", "parent stranger")  # all that is needed is imported after this
    ends(host, 1)
    host.execute(DROP_PRIVILEGES)
    host.new("fork")
    start(host, logs, "parent")
    zygote = reports(host, 1)[0]["parent"]
    ends(host, 1)
    room = tasks_of(NOBODY) + 1 if os.getuid() == 0 else 1
    limit = f"import resource\nanswer = resource.prlimit({zygote}, resource.RLIMIT_NPROC"
    before = host.execute(f"{limit})")
    host.execute(f"{limit}, ({room}, {before[1]}))")

    def start_some() -> None:
        """Start groups until one cannot be.

        There is room for a process but not for its thread, so that it ends soon: now and then
        before the next one is forked, and then there is room for that.
        """
        for group in range(2, 100):
            start(host, logs, "print=here hang", "print=here", "print=here", group=group)
            host.stop_group(group)
            ends(host, 3)

    with pytest.raises(EngineError, match=r"[123] of 3 workers .*: Resource temporarily") as caught:
        start_some()

    assert "ulimit -u" in str(caught.value.hint)
    assert host.next_event(0.1) is None  # nothing is heard of those that were started
    assert Path(f"/proc/{zygote}/task/{zygote}/children").read_text() == ""
    host.execute(f"{limit}, {before})")
    start(host, logs, "parent", group=100)
    assert reports(host, 1)[0]["parent"] == zygote
    assert all(isinstance(one.exit, Finished) for one in ends(host, 1).values())
    start(host, logs, "", "", group=101)
    assert all(isinstance(one.exit, Finished) for one in ends(host, 2).values())


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_however_few_files_there_are_a_start_is_whole_or_nothing(
    host: EngineHost, tmp_path: Path, way: Start
) -> None:
    count = "import os, psutil\nanswer = len(os.listdir('/proc/self/fd')) - 1"
    host.execute("import os\nhigh = os.dup2(0, 700)")  # no limit is there for what is open
    host.new("fork")
    start(host, tmp_path, "")  # all that will be needed is imported after this
    refusals = 0
    for spare in range(40):
        host.new(way)
        opened = host.execute(count)
        limit = f"resource.setrlimit(resource.RLIMIT_NOFILE, ({opened + spare}, 4096))"
        host.execute(f"import resource\n{limit}")
        try:
            start(host, tmp_path, "report=1", "report=1")
        except EngineError:
            refusals += 1
        else:
            assert all(isinstance(one.exit, Finished) for one in ends(host, 2).values())
            break
        assert host.next_event(0.0) is None
        host.execute("resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))")
        host.close()
        assert host.execute("answer = psutil.Process().children()") == []
        assert host.execute(count) == opened - 3  # the engine's own
    assert 3 < refusals < 39


@contextmanager
def memory_cgroup(limit: int) -> Iterator[Path]:
    """Make a memory cgroup inside our own."""
    own = counter_files(
        Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
    )
    if not own or not own[0].is_file():
        pytest.skip("there is no memory cgroup to be seen")
    folder = own[0].parent / f"holdfast-test-{os.getpid()}"
    name = "memory.limit_in_bytes" if own[0].name == "memory.oom_control" else "memory.max"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made: {error}")
    try:
        if not (folder / name).is_file():
            pytest.skip("no memory cgroup can be made here: it would have no controller")
        (folder / name).write_text(str(limit))
        yield folder
    finally:
        while (folder / "cgroup.procs").read_text():
            pause()
        folder.rmdir()


@pytest.mark.req("T-040")
def test_a_worker_that_is_killed_for_its_memory_is_known_to_be(tmp_path: Path) -> None:
    with memory_cgroup(limit=150 * MIB) as folder:
        host = EngineHost()
        try:
            (folder / "cgroup.procs").write_text(str(host.pid))
            host.new("spawn")
            start(host, tmp_path, "print=hungry eat=400", "echo signal=9")
            hungry = ends(host, 1)[0].exit
            host.send(1, 1, Met(-1))
            killed = ends(host, 1)[1].exit
        finally:
            host.end()

    assert isinstance(hungry, Died)
    assert (hungry.signal, hungry.out_of_memory) == (9, True)
    assert hungry.last_lines == ("hungry",)
    assert isinstance(killed, Died)
    assert (killed.signal, killed.out_of_memory) == (9, False)
    assert not is_running(hungry.pid)
    assert log_of(tmp_path, 0).is_file()

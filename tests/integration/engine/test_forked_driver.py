"""A zygote that is a fork of its driver is like a new interpreter, but for what is imported."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.core.run.outcomes import Finished
from holdfast.engine.base import EngineError
from holdfast.errors import ConfigError
from holdfast.testing.suites.engine import ends, log_of, reports, start
from tests.conformance.engine_host import EngineHost


def is_new_interpreter(zygote: int) -> bool:
    return b"zygote" in Path(f"/proc/{zygote}/cmdline").read_bytes()


def test_a_driver_with_one_thread_is_forked(host: EngineHost, tmp_path: Path) -> None:
    host.execute("import colorsys")  # nobody else would
    host.new(None)
    start(host, tmp_path, "parent module=colorsys")
    parent, loaded = reports(host, 2)

    assert not is_new_interpreter(parent["parent"])
    assert loaded == {"loaded": True}


A_THREAD = """
import threading
threading.Thread(target=threading.Event().wait, name="beat", daemon=True).start()
"""
A_USED_GPU = """
import sys, types
sys.modules["torch.cuda"] = types.SimpleNamespace(is_initialized=lambda: True)
"""
A_TRACKER = """
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=8)
memory.close()
memory.unlink()
"""


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (A_THREAD, "other threads run: beat"),
        (A_USED_GPU, "it has used a GPU"),
        ("import os; os.readlink = lambda _: '/dev/nvidiactl'", "it has used a GPU"),
        (
            "from holdfast.engine.local import forking; forking.DRIVER_BYTES_MAX = 1",
            "it uses [0-9]+ MiB",
        ),
        ("import obstore", "obstore is loaded, which does not survive a fork"),
        ("import sys; sys.settrace(lambda *_: None)", "a debugger or tracer is attached"),
        (A_TRACKER, "multiprocessing tracks shared memory or semaphores for it"),
    ],
    ids=["thread", "gpu", "gpu-asked-for", "large", "obstore", "tracer", "tracker"],
)
def test_a_driver_that_cannot_be_forked_spawns(
    host: EngineHost, tmp_path: Path, program: str, reason: str
) -> None:
    host.execute(program)
    host.new(None)
    start(host, tmp_path, "parent")
    [told] = reports(host, 1)

    assert is_new_interpreter(told["parent"])
    host.new("fork")
    with pytest.raises(EngineError, match=f"start='fork': .*: {reason}"):
        start(host, tmp_path, "", group=2)


def test_a_driver_in_the_middle_of_asyncio_cannot_be_forked(host: EngineHost) -> None:
    reason = host.execute(
        "import asyncio\nfrom holdfast.engine.local.forking import why_not_forkable\n"
        "async def ask(): return why_not_forkable()\n"
        "answer = why_not_forkable(), asyncio.run(ask()), why_not_forkable()\n"
    )

    assert reason == (None, "an asyncio loop runs in it", None)


@pytest.mark.parametrize("chosen", ["spawn", "fork"])
def test_the_environment_can_choose_the_way(host: EngineHost, tmp_path: Path, chosen: str) -> None:
    host.execute(f"import os; os.environ['HOLDFAST_START'] = {chosen!r}")
    host.new(None)
    start(host, tmp_path, "parent")

    assert is_new_interpreter(reports(host, 1)[0]["parent"]) == (chosen == "spawn")


def test_a_way_that_there_is_not_is_refused(host: EngineHost, tmp_path: Path) -> None:
    host.execute("import os; os.environ['HOLDFAST_START'] = 'forkserver'")
    host.new(None)

    with pytest.raises(ConfigError, match="HOLDFAST_START='forkserver' in the environment"):
        start(host, tmp_path, "")


NATIVE_THREAD = """
import ctypes, os
libc = ctypes.CDLL(None)
handle = ctypes.c_ulong()
libc.pthread_create(ctypes.byref(handle), None, ctypes.cast(libc.pause, ctypes.c_void_p), None)
while len(os.listdir("/proc/self/task")) < 2: pass
"""


def test_a_driver_with_threads_that_python_does_not_know_spawns(
    host: EngineHost, tmp_path: Path
) -> None:
    host.execute(NATIVE_THREAD)
    host.new(None)
    start(host, tmp_path, "parent")
    [told] = reports(host, 1)

    assert is_new_interpreter(told["parent"])
    host.new("fork")
    with pytest.raises(EngineError, match="it runs 1 threads of native libraries"):
        start(host, tmp_path, "", group=2)


COMPUTES = "import numpy\nhalf = numpy.full((600, 600), 0.5)\nanswer = float((half @ half).sum())"


def test_a_library_that_is_prepared_for_forks_does_not_stand_in_the_way(
    host: EngineHost, tmp_path: Path
) -> None:
    """OpenBLAS has a thread for each CPU, which it ends for a fork."""
    expected = host.execute(COMPUTES)
    threads = host.execute("import os\nanswer = len(os.listdir('/proc/self/task'))")
    host.new("fork")
    start(host, tmp_path, "compute", "compute")

    assert threads > 1 or os.cpu_count() == 1
    assert [one["sum"] for one in reports(host, 2)] == [expected, expected]


# ---------------------------------------------------------------------- what is the driver's


def test_a_worker_holds_none_of_the_drivers_files(host: EngineHost, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    host.execute(
        "import socket, tempfile\n"
        f"opened = [open({str(tmp_path / 'secret')!r}) for _ in range(3)]\n"
        "listener = socket.create_server(('127.0.0.1', 0))\n"
    )
    host.new("fork")
    start(host, tmp_path, "files")
    [told] = reports(host, 1)

    kinds = [name.partition(":")[0] for name in told["files"].values()]
    assert kinds.count("socket") == 1
    assert not [name for name in told["files"].values() if "secret" in name]


def test_a_lock_that_the_driver_lets_go_of_is_free(host: EngineHost, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    host.execute(f"import fcntl\nlock = open({str(path)!r}, 'w')\nfcntl.flock(lock, fcntl.LOCK_EX)")
    host.new("fork")
    start(host, tmp_path, "report=1 hang")
    reports(host, 1)

    with path.open("w") as mine:
        with pytest.raises(BlockingIOError):  # the fork has not let go of it for the driver
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        host.execute("lock.close()")
        fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_a_worker_writes_to_a_file_of_the_drivers_goes_nowhere(
    host: EngineHost, tmp_path: Path
) -> None:
    """Above all not to another file that has come to have the same number."""
    path = tmp_path / "notes"
    host.execute(
        "import holdfast.testing.workers as workers\n"
        f"workers.notes = open({str(path)!r}, 'w', buffering=1)\n"
        "workers.notes.write('by the driver\\n')\n"
    )
    host.new("fork")
    start(host, tmp_path, "scribble")

    ended = ends(host, 1)[0].exit

    assert isinstance(ended, Finished)
    assert path.read_text() == "by the driver\n"
    assert log_of(tmp_path, 0).read_text() == ""


def test_a_module_that_has_the_drivers_stream_prints_to_the_workers_log(
    host: EngineHost, tmp_path: Path
) -> None:
    host.execute(
        "import sys\nimport holdfast.testing.workers as workers\n"
        "workers.notes = sys.stdout = open(1, 'w', closefd=False)\n"  # with a buffer
        "sys.stdout.write('half a line of the driver')\n"
    )
    host.new("fork")
    start(host, tmp_path, "scribble")
    ends(host, 1)

    assert log_of(tmp_path, 0).read_text() == "by the worker\n"


def test_what_waits_to_be_printed_is_printed_once(tmp_path: Path) -> None:
    program = """
import atexit, sys
from pathlib import Path
from holdfast.engine.local.engine import LocalEngine
from holdfast.testing.suites.engine import ENTRY, ends, start
atexit.register(print, "at exit")
sys.stdout = open(1, "w", closefd=False)  # with a buffer, whatever the environment says
sys.stdout.write("half a line, ")
engine = LocalEngine(ENTRY, start="fork")
start(engine, Path(sys.argv[1]), "print=worker", "exit=3")
ends(engine, 2)
engine.close()
print("the other half")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert done.stdout == "half a line, the other half\nat exit\n"
    assert done.stderr == ""
    assert log_of(tmp_path, 0).read_text() == "worker\n"


def test_signal_handlers_and_masks_of_the_driver_are_not_the_workers(
    host: EngineHost, tmp_path: Path
) -> None:
    host.execute(
        "import signal\n"
        "for name in ('SIGTERM', 'SIGHUP', 'SIGINT', 'SIGCHLD'):\n"
        "    signal.signal(getattr(signal, name), lambda *_: None)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM])\n"
    )
    host.new("fork")
    start(host, tmp_path, "signals", "hang")

    assert reports(host, 1) == [{"odd": [], "blocked": []}]
    host.stop_group(1, grace_s=60.0)


def test_the_drivers_log_gets_nothing_from_workers(host: EngineHost, tmp_path: Path) -> None:
    path = tmp_path / "driver.log"
    host.execute(
        "import logging, os\n"
        f"logging.basicConfig(filename={str(path)!r}, level='INFO')\n"
        "logging.getLogger('x').addHandler(logging.StreamHandler(open(os.devnull, 'w')))\n"
        "logging.info('by the driver')\n"
    )
    host.new("fork")
    start(host, tmp_path, "complain=x complain=y")
    ends(host, 1)

    assert path.read_text() == "INFO:root:by the driver\n"
    said = log_of(tmp_path, 0).read_text()
    assert said == "x complains\nWARNING x: x complains\nWARNING y: y complains\n"


def test_a_worker_does_not_draw_the_drivers_numbers(host: EngineHost, tmp_path: Path) -> None:
    host.execute(
        "import random, numpy\nrandom.seed(1)\nnumpy.random.seed(1)\n"
        "state = random.getstate()\n"
        "answer = random.random(), numpy.random.rand()\n"
        "random.setstate(state); numpy.random.seed(1)\n"
    )
    host.new("fork")
    start(host, tmp_path, "draw", "draw", "draw")
    drawn = reports(host, 3)

    assert len({one["python"] for one in drawn}) == 3
    assert len({one["numpy"] for one in drawn}) == 3


@pytest.mark.slow
def test_torch_that_the_driver_has_imported_and_seeded_is_new_in_a_worker(
    host: EngineHost, tmp_path: Path
) -> None:
    host.execute("import torch\ntorch.manual_seed(7)")
    host.new("fork")
    start(host, tmp_path, "draw compute", "draw compute")
    told = reports(host, 4)

    seeds = {one["torch"] for one in told if "python" in one}
    assert len(seeds) == 2
    assert 7 not in seeds
    assert [one["torch"] for one in told if "python" not in one] == [54_000_000.0] * 2


@pytest.mark.slow
def test_a_driver_that_has_computed_with_torch_spawns(host: EngineHost, tmp_path: Path) -> None:
    """Its threads wait for work in the driver; in a fork of it, the next computation would hang."""
    threads = host.execute(
        "import os, torch\nhalf = torch.full((600, 600), 0.5)\nhalf @ half\n"
        "answer = len(os.listdir('/proc/self/task'))"
    )
    if threads < 2:
        pytest.skip("on a machine with one CPU, torch has no threads")
    host.new(None)
    start(host, tmp_path, "parent compute")
    told, computed = reports(host, 2)

    assert is_new_interpreter(told["parent"])
    assert computed["torch"] == 54_000_000.0  # torch was imported ahead: the driver has it


def test_processes_that_a_worker_spawns_do_not_run_the_drivers_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import sys
from pathlib import Path
from holdfast.engine.local.engine import LocalEngine
from holdfast.testing.suites.engine import ENTRY, ends, start
print("the script runs as", __name__, flush=True)
engine = LocalEngine(ENTRY, start="fork")
start(engine, Path(sys.argv[1]), "multiprocess")
print(type(ends(engine, 1)[0].exit).__name__)
engine.close()
""")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert done.stdout == "the script runs as __main__\nFinished\n"
    assert log_of(tmp_path, 0).read_text() == ""

"""Objects that are put by one process and read by others, whenever those were started."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast.objects import ObjectLost

SIZE = 64 << 20

# Does what it is told, line by line; what it put or got stays in its variables.
PROCESS = """
import base64, pickle, sys
import numpy as np
import holdfast

def send(value):
    print(base64.b64encode(pickle.dumps(value)).decode(), flush=True)

for line in sys.stdin:
    names = globals()
    try:
        exec(pickle.loads(base64.b64decode(line)), names)
    except holdfast.errors.HoldfastError as error:
        send(error)
"""


class Process:
    """Another Python, which executes what it is sent."""

    def __init__(self) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", PROCESS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, code: str, **values: Any) -> Any:
        """Execute code that calls `send`, and return what was sent."""
        import base64

        assert self.popen.stdin is not None and self.popen.stdout is not None
        given = "".join(
            f"{name} = pickle.loads({pickle.dumps(value)!r})\n" for name, value in values.items()
        )
        line = base64.b64encode(pickle.dumps(given + code)).decode()
        self.popen.stdin.write(f"{line}\n")
        self.popen.stdin.flush()
        return pickle.loads(base64.b64decode(self.popen.stdout.readline()))

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def close(self) -> None:
        self.popen.kill()
        self.popen.communicate()


@pytest.fixture
def start() -> Iterator[Callable[[], Process]]:
    processes: list[Process] = []

    def started() -> Process:
        processes.append(Process())
        return processes[-1]

    yield started
    for process in processes:
        process.close()


def holders(token: str) -> list[int]:
    """Return the processes that hold an object open, or have it mapped."""
    pids = [int(process.name) for process in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if holds(pid, token)]


def holds(pid: int, token: str) -> bool:
    try:
        if token in Path(f"/proc/{pid}/maps").read_text():
            return True
        handles = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False  # it has just ended, or is another user's
    return any(token in _label(f"/proc/{pid}/fd/{handle}") for handle in handles)


def _label(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # closed by now


def private_bytes(pid: int | str = "self") -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise AssertionError("the kernel tells no RssAnon")


# ---------------------------------------------------------------------- reading


def test_a_process_that_was_started_before_the_put_reads_it_without_a_copy(
    start: Callable[[], Process],
) -> None:
    reader = start()
    reader.do("send(holdfast.get(holdfast.put(np.ones(1))).sum())")  # all is imported
    before = private_bytes(reader.popen.pid)
    ref = holdfast.put({"x": np.ones(SIZE // 8)})

    total = reader.do("got = holdfast.get(ref)['x']; send(got.sum())", ref=ref)

    assert total == SIZE // 8
    assert private_bytes(reader.popen.pid) - before < SIZE // 8


def test_the_owner_reads_what_it_has_put_without_a_copy() -> None:
    ref = holdfast.put(np.ones(SIZE // 8))
    before = private_bytes()

    assert holdfast.get(ref).sum() == SIZE // 8
    assert private_bytes() - before < SIZE // 8


def test_a_reader_cannot_change_what_others_read(start: Callable[[], Process]) -> None:
    reader = start()
    ref = holdfast.put(np.zeros(10))

    said = reader.do(
        "try:\n    holdfast.get(ref)[0] = 1\nexcept ValueError as error:\n    send(str(error))",
        ref=ref,
    )

    assert "read-only" in said
    assert holdfast.get(ref)[0] == 0


def test_a_process_maps_an_object_once(start: Callable[[], Process]) -> None:
    reader = start()
    ref = holdfast.put(np.zeros(10))

    shares = reader.do(
        "one, other = holdfast.get(ref), holdfast.get(pickle.loads(pickle.dumps(ref)))\n"
        "send(np.shares_memory(one, other))",
        ref=ref,
    )

    assert shares


def test_a_reference_comes_back_to_its_owner_as_the_one_it_was(
    start: Callable[[], Process],
) -> None:
    ref = holdfast.put("x")

    back = start().do("send(ref)", ref=ref)

    assert back == ref
    assert holdfast.get(back) == "x"


# ---------------------------------------------------------------------- when it is gone


def named_in_memory() -> set[str]:
    """Return the names in shared memory, but for those of `multiprocessing`: others use that."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("psm_")}


def test_nothing_is_left_of_an_object_whose_owner_was_killed(start: Callable[[], Process]) -> None:
    owner, reader = start(), start()
    before = named_in_memory()
    ref = owner.do("ref = holdfast.put(np.ones(1_000_000)); send(ref)")
    reader.do("send(1)")
    assert holders(ref.id) == [owner.popen.pid]

    owner.kill()

    assert holders(ref.id) == []
    assert named_in_memory() <= before
    lost = reader.do("holdfast.get(ref)", ref=ref)
    assert isinstance(lost, ObjectLost)
    assert "is gone with the process that put it" in str(lost)
    assert f"pid {owner.popen.pid}" in str(lost)
    assert "Try: put it again" in str(lost)
    with pytest.raises(ObjectLost):
        holdfast.get(ref)


def test_an_owner_that_was_killed_and_not_yet_reaped_has_no_objects(
    start: Callable[[], Process],
) -> None:
    owner = start()
    ref = owner.do("ref = holdfast.put(1); send(ref)")
    os.kill(owner.popen.pid, signal.SIGKILL)
    os.waitid(os.P_PID, owner.popen.pid, os.WEXITED | os.WNOWAIT)

    with pytest.raises(ObjectLost, match="is gone with the process that put it"):
        holdfast.get(ref)


def test_what_a_process_has_got_it_keeps_when_the_owner_is_killed(
    start: Callable[[], Process],
) -> None:
    owner = start()
    ref = owner.do("ref = holdfast.put(np.arange(1000)); send(ref)")
    array = holdfast.get(ref)

    owner.kill()

    assert array.sum() == 499_500
    assert holdfast.get(ref).sum() == 499_500
    del array, ref
    gc.collect()


def test_an_object_is_freed_when_its_owner_has_no_reference_left(
    start: Callable[[], Process],
) -> None:
    owner = start()
    ref = owner.do("ref = holdfast.put(np.arange(1000)); send(ref)")
    owner.do("del ref; send(1)")

    assert holders(ref.id) == []
    with pytest.raises(ObjectLost, match="was freed"):
        holdfast.get(ref)


def test_a_reader_that_lets_go_frees_its_part_and_nothing_else(
    start: Callable[[], Process],
) -> None:
    reader = start()
    ref = holdfast.put(np.arange(1000))
    reader.do("got = holdfast.get(ref); send(1)", ref=ref)
    assert reader.popen.pid in holders(ref.id)

    reader.do("del got, ref; send(1)")

    assert holders(ref.id) == [os.getpid()]
    assert reader.do("send(holdfast.get(ref).sum())", ref=ref) == 499_500


def test_an_object_of_another_machine_is_told_as_such() -> None:
    ref = holdfast.put(1)
    facts: Any = ref.__reduce__()[1]
    token, owner, _, size = facts
    elsewhere = type(owner)("gpu-7", 1, owner.started, "another kernel", owner.user)
    del ref
    from holdfast.objects.refs import _unpickled

    there = _unpickled(token, elsewhere, "/proc/1/fd/99", size)

    with pytest.raises(ObjectLost, match=r"was put on gpu-7 \(pid 1\), and this is .*: objects"):
        holdfast.get(there)


# ---------------------------------------------------------------------- forks


FORKS = """
import os

def forked(work):
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = work()
        except BaseException as error:
            said = error
        os.write(theirs, pickle.dumps(said))
        os._exit(0)
    os.close(theirs)
    with open(ours, 'rb') as file:
        said = pickle.loads(file.read())
    os.waitpid(child, 0)
    return said
"""


@pytest.fixture
def parent(start: Callable[[], Process]) -> Process:
    process = start()
    process.do(FORKS + "send(1)")
    return process


@pytest.mark.parametrize("got_before", [False, True])
def test_a_fork_reads_what_its_parent_has_put(parent: Process, got_before: bool) -> None:
    parent.do("ref = holdfast.put(np.arange(1000)); send(1)")
    if got_before:
        parent.do("got = holdfast.get(ref); send(1)")

    assert parent.do("send(forked(lambda: holdfast.get(ref).sum()))") == 499_500


@pytest.mark.parametrize("got_before", [False, True])
def test_a_fork_reads_tensors_of_its_parent(parent: Process, got_before: bool) -> None:
    pytest.importorskip("torch")
    parent.do("import torch; ref = holdfast.put(torch.ones(1000)); send(1)")
    if got_before:
        parent.do("got = holdfast.get(ref); send(1)")

    assert parent.do("send(forked(lambda: holdfast.get(ref).sum().item()))") == 1000


def test_a_fork_that_drops_its_reference_frees_nothing(parent: Process) -> None:
    parent.do("ref = holdfast.put(np.arange(1000)); send(1)")

    parent.do("def drop():\n    global ref\n    del ref\nsend(forked(drop))")

    assert parent.do("send(holdfast.get(ref).sum())") == 499_500


def test_a_fork_keeps_no_object_alive_that_its_parent_has_put(parent: Process) -> None:
    ref = parent.do("ref = holdfast.put(np.arange(1000)); send(ref)")
    child = parent.do(
        "import signal\n"
        "ours, theirs = os.pipe()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    sys.stdout.close(); os.write(theirs, b'.'); signal.pause(); os._exit(0)\n"
        "os.read(ours, 1)\n"
        "send(child)"
    )

    parent.kill()

    try:
        assert holders(ref.id) == []
        with pytest.raises(ObjectLost, match="is gone with the process that put it"):
            holdfast.get(ref)
    finally:
        os.kill(child, signal.SIGKILL)


def test_what_a_fork_puts_is_its_own(parent: Process) -> None:
    lost = parent.do("send(forked(lambda: holdfast.put(1)))")

    with pytest.raises(ObjectLost, match="is gone with the process that put it"):
        holdfast.get(lost)


# ---------------------------------------------------------------------- training


TRAINING = """
from pathlib import Path
from holdfast import train
from holdfast.train import DataParallelTrainer, RunConfig, ScalingConfig

def private_bytes():
    status = Path('/proc/self/status').read_text()
    return int(status.partition('RssAnon:')[2].split()[0]) << 10

def loop(config):
    before = private_bytes()
    total = float(holdfast.get(config['data']).sum())
    train.report({'total': total, 'copied': private_bytes() - before})

trainer = DataParallelTrainer(
    loop,
    train_loop_config={'data': holdfast.put(np.ones(size // 8))},
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path=folder, name='run'),
)
send(trainer.fit().metrics)
"""


@pytest.mark.parametrize("start_as", ["fork", "spawn"])
def test_training_workers_read_an_object_of_their_driver(
    start_as: str,
    start: Callable[[], Process],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_START", start_as)

    metrics = start().do(TRAINING, size=SIZE, folder=str(tmp_path))

    assert metrics["total"] == SIZE // 8
    assert metrics["copied"] < SIZE // 8

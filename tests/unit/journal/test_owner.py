from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from holdfast.journal.owner import Owner, this_process
from tests.unit.journal.holders import someone_elsewhere

INTRODUCE = """
import ctypes, json, sys
from holdfast.journal.owner import this_process
ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
print(json.dumps(this_process().to_record()), flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(name: str = "python") -> Iterator[tuple[subprocess.Popen[str], Owner]]:
    """A real process that has said who it is and lives until it is told otherwise."""
    command = [sys.executable, "-c", INTRODUCE, name]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        try:
            yield process, Owner.from_record(json.loads(process.stdout.readline()))
        finally:
            process.kill()


def test_a_process_knows_itself_and_is_not_dead() -> None:
    me = this_process()

    assert me.pid == os.getpid()
    assert me == this_process()
    assert not me.is_proven_dead()


def test_an_owner_survives_the_way_to_a_record_and_back() -> None:
    me = this_process()

    assert Owner.from_record(json.loads(json.dumps(me.to_record()))) == me


def test_an_owner_is_shown_by_host_and_process() -> None:
    assert str(someone_elsewhere("gpu-3", 4121)) == "gpu-3 (pid 4121)"


def test_another_process_is_alive_until_it_is_killed() -> None:
    with another_process() as (process, owner):
        alive = owner.is_proven_dead()
        process.kill()
        process.wait()

        assert not alive
        assert owner.is_proven_dead()


def test_a_killed_process_that_nobody_has_reaped_is_dead() -> None:
    """It still has an entry in the process table, but it will never write again."""
    with another_process() as (process, owner):
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert owner.is_proven_dead()


def test_a_stopped_process_is_not_dead() -> None:
    with another_process() as (process, owner):
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)

        assert not owner.is_proven_dead()


def test_another_process_with_the_same_number_is_not_the_same_process() -> None:
    earlier = replace(this_process(), started=this_process().started - 1)

    assert earlier.is_proven_dead()


def test_a_number_that_no_process_has_is_a_dead_one() -> None:
    with open("/proc/sys/kernel/pid_max") as file:
        beyond = int(file.read()) + 1

    assert replace(this_process(), pid=beyond).is_proven_dead()


@pytest.mark.parametrize("pid", [1, 4121, None], ids=["init", "any", "mine"])
def test_of_a_process_elsewhere_nothing_is_proven(pid: int | None) -> None:
    me = this_process()
    elsewhere = someone_elsewhere(pid=pid or me.pid)

    assert not elsewhere.is_proven_dead()
    assert not replace(me, place=elsewhere.place, pid=elsewhere.pid).is_proven_dead()


@pytest.mark.parametrize("name", [") Z 1 (", "a b) Z", "((("])
def test_a_process_may_have_any_name(name: str) -> None:
    """The kernel shows the name unescaped in the middle of the line the state is read from."""
    with another_process(name) as (_, owner):
        assert not owner.is_proven_dead()


LOOK_AS_NOBODY = """
import os, sys
from dataclasses import replace
from holdfast.journal.owner import this_process
owner = replace(this_process(), pid=int(sys.argv[1]), started=float(sys.argv[2]))
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
assert not os.path.exists(f"/proc/{owner.pid}"), "the process is not hidden"
print(owner.is_proven_dead())
"""


def test_a_process_that_this_user_may_not_see_is_not_dead() -> None:
    """Clusters hide the processes of others: `/proc` looks as if they had ended."""
    hide = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    with another_process() as (_, owner):
        look = [sys.executable, "-c", LOOK_AS_NOBODY, str(owner.pid), str(owner.started)]
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", hide, "sh"]
        looked = subprocess.run([*command, *look], capture_output=True, text=True, check=False)
    if "unshare" in looked.stderr or "mount" in looked.stderr:
        pytest.skip(f"hiding processes needs root: {looked.stderr.strip()}")

    assert looked.stdout == "False\n", looked.stderr

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
from tests.another_user import ALICE, needs_root, run_as
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
    """A real process that has reported its identity and lives until it is ended."""
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


LOOK = """
import sys
from dataclasses import replace
from holdfast.journal.owner import this_process
owner = replace(this_process(), pid=int(sys.argv[1]), started=float(sys.argv[2]))
print(owner.is_proven_dead())
"""


@pytest.mark.parametrize("hidepid", [1, 2, 4])
def test_a_process_that_this_user_may_not_see_is_not_dead(hidepid: int) -> None:
    """Clusters hide the processes of others: `/proc` denies, or looks as if they had ended."""
    needs_root()
    with another_process() as (process, owner):
        look = ["-c", LOOK, str(owner.pid), str(owner.started)]
        living = run_as(ALICE, *look, hidepid=hidepid)
        process.kill()
        process.wait()
        dead = run_as(ALICE, *look, hidepid=hidepid)

    assert living.stdout == "False\n", living.stderr
    assert dead.stdout == "True\n", dead.stderr


LOOK_AT_ONE_THAT_HIDES = """
import json, os, subprocess, sys
from holdfast.journal.owner import Owner
introduce = (
    "import ctypes, json, sys; from holdfast.journal.owner import this_process;"
    "record = json.dumps(this_process().to_record());"
    "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0);"  # not dumpable: hidden from others
    "print(record, flush=True); sys.stdin.read()"
)
with subprocess.Popen([sys.executable, "-c", introduce], text=True,
                      stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
    owner = Owner.from_record(json.loads(process.stdout.readline()))
    print(os.path.exists(f"/proc/{owner.pid}"), owner.is_proven_dead())
    process.kill()
"""


def test_a_process_of_this_user_that_hides_is_not_dead() -> None:
    """`hidepid=4` shows only what may be traced, and a process can refuse that to its own user."""
    needs_root()
    looked = run_as(ALICE, "-c", LOOK_AT_ONE_THAT_HIDES, hidepid=4)

    assert looked.stdout == "False False\n", looked.stderr

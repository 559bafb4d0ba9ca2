"""Starts a training script of some system, hears how far it is, and leaves nothing of it behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers import peers_python
from bench.runner import SideFailed
from bench.scripts import marks

SCRIPTS = Path(__file__).parent / "scripts"
SHORT = "/tmp"  # sockets need short paths, and Ray's are long already
MARK = "HOLDFAST_BENCH_RUN"  # the variable that all processes of a program inherit
TIMEOUT_S = 240  # ten times what the slowest peer takes on a machine with nothing else to do
KILL_TIMEOUT_S = 60
POLL_S = 0.001
LOOK_S = 0.1
LOG_LINES = 30


class ProgramFailed(SideFailed):
    """A script ended, or took too long, before it had marked what it was started for."""


class Program:
    """A script that runs, and every process that it has started, directly or not."""

    def __init__(
        self, command: Sequence[str], folder: Path, *, environment: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._mark = uuid.uuid4().hex
        self._log = folder / f"output-{self._mark}"
        with self._log.open("wb") as log:
            self.begun = time.time()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **environment, MARK: self._mark},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_marks(self, *names: str, within_s: float = TIMEOUT_S) -> list[dict[str, Any]]:
        """Return what these marks say, once all of them are there."""
        begun = time.monotonic()
        while True:
            ended = (
                self._process.poll() is not None
            )  # looked at first: it may have marked and ended
            found = [marks.read(str(self._folder), name) for name in names]
            there = [one for one in found if one is not None]
            if len(there) == len(names):
                return there
            if ended or time.monotonic() > begun + within_s:
                missing = [name for name, one in zip(names, found, strict=True) if one is None]
                raise ProgramFailed(self._why(missing, time.monotonic() - begun))
            time.sleep(POLL_S)

    def must_run_until(self, when: float) -> None:
        """Return at this time of the clock; a script that ends before has failed."""
        while (left_s := when - time.time()) > 0:
            if self._process.poll() is not None:
                raise ProgramFailed(self._why(["being told to end"], 0.0))
            time.sleep(min(left_s, LOOK_S))

    def pids(self) -> list[int]:
        """Return every process of this program, whoever has adopted it since."""
        wanted = f"{MARK}={self._mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:  # it has ended, or is somebody else's
                continue
        return found

    def kill(self) -> None:
        """End every process at once, and return when none is left."""
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while pids := self.pids():
            if time.monotonic() > deadline:  # a kernel that does not let go of one: nothing helps
                raise ProgramFailed(f"processes {pids} do not end")
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(POLL_S)
        self._process.wait()

    def _why(self, missing: Sequence[str], waited_s: float) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        code = self._process.poll()
        state = f"still ran after {waited_s:.0f} s" if code is None else f"ended with code {code}"
        return "\n  ".join([f"the script {state} without {', '.join(missing)}:", *lines])


@contextmanager
def running(
    system: str, folder: Path, options: Mapping[str, Any], **environment: str
) -> Iterator[Program]:
    """Start the script of a system with these options; kill what is left of it afterwards.

    A folder that has been used is used again: its marks and checkpoints are still there.
    """
    folder.mkdir(exist_ok=True)
    short = tempfile.mkdtemp(prefix="hf-", dir=SHORT)
    given = json.dumps({"workers": 2, **options, "folder": str(folder), "sockets": short})
    start, variables = COMMANDS[system]
    program = Program(
        [*start, given], folder, environment={**variables, **environment, "TMPDIR": short}
    )
    try:
        yield program
    finally:
        program.kill()
        shutil.rmtree(short, ignore_errors=True)


def _script(name: str) -> str:
    return str(SCRIPTS / name)


# What other systems are spared: gloo that asks a name server who this machine is.
_LOCAL = {"GLOO_SOCKET_IFNAME": "lo"}
# Without this, torchrun keeps one store for all restarts, in which the new workers find where the
# dead ones were: most groups then fail again, or wait for each other for half an hour.
_ELASTIC_LOCAL = {**_LOCAL, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
_RAY = {**_LOCAL, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
_ELASTIC = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

COMMANDS: Mapping[str, tuple[Sequence[str], Mapping[str, str]]] = {
    "holdfast": ([sys.executable, _script("holdfast_train.py")], {}),
    "data": ([sys.executable, _script("data_in_memory.py")], {}),
    "torchrun": ([*_ELASTIC, "--max-restarts", "2", _script("elastic.py")], _ELASTIC_LOCAL),
    "torchrun-forever": (
        [*_ELASTIC, "--max-restarts", "1000", _script("elastic.py")],
        _ELASTIC_LOCAL,
    ),
    "spawn": ([sys.executable, _script("spawn.py")], _LOCAL),
    "fork": ([sys.executable, _script("bare_fork.py")], _LOCAL),
    "plain": ([sys.executable, _script("plain_saves.py")], _LOCAL),
    "lightning": ([str(peers_python()), _script("lightning_ddp.py")], _LOCAL),
    "ray": ([str(peers_python()), _script("ray_train.py")], _RAY),
    "ray-tuned": (
        [str(peers_python()), _script("ray_train.py")],
        {**_RAY, "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.001"},
    ),
}

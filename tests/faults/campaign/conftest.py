"""A campaign: scripts as real processes, each known by a mark, and a census of what they leave."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.control.record.run_view import look
from holdfast.storage.locate import open_store
from holdfast.train import Result
from tests.faults.campaign.census import SHARED_MEMORY, Census
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import BELL
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
MARK = "HOLDFAST_TEST_CAMPAIGN"
TOY, TORCH = "tests.faults.campaign.toy_script", "tests.faults.campaign.torch_script"


@dataclass(frozen=True)
class Launch:
    """A driver that was launched, and the files that it prints to."""

    driver: subprocess.Popen[bytes]
    output: Path
    errors: Path

    def said(self) -> str:
        return self.errors.read_text(errors="replace")


class Campaign(Lab):
    """One run, launched as often as it takes, and everything that came of it."""

    def __init__(self, folder: Path, script: str, *, memory: Path = SHARED_MEMORY) -> None:
        super().__init__(folder)
        self._script = script
        self._mark = secrets.token_hex(8)
        self.launches: list[Launch] = []
        self.temporary, self.here = folder / "tmp", folder / "here"
        for one in (self.temporary, self.here):
            one.mkdir(parents=True)
        os.mkfifo(folder / BELL)
        empty = [self.temporary, self.here]
        self.census = Census(f"{MARK}={self._mark}", self.run, empty, memory=memory)

    @property
    def environment(self) -> dict[str, str]:
        """What every process of this campaign finds, and by which it is known."""
        return {
            MARK: self._mark,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "TMPDIR": str(self.temporary),
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "torch"),  # torch's own, and it stays
        }

    # ------------------------------------------------------------------ launching

    def launch(self, *, through: tuple[str, ...] = (), **given: Any) -> Launch:
        """Launch the script; `through` is a command that it becomes part of."""
        place = {"storage": str(self.storage), "notes": str(self.notes)}
        argument = json.dumps({**place, "work": str(self.folder / "work"), **given})
        number = len(self.launches)
        output, errors = self.folder / f"output-{number}", self.folder / f"errors-{number}"
        with output.open("wb") as out, errors.open("wb") as err:
            driver = subprocess.Popen(
                [*through, sys.executable, "-m", self._script, argument],
                cwd=self.here,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        self.launches.append(Launch(driver, output, errors))
        return self.launches[-1]

    def finish(self, **given: Any) -> dict[str, Any]:
        """Launch the script, and return what it printed when it came to its end."""
        launch = self.launch(**given)
        self.observe(launch)
        code = launch.driver.wait()
        assert code == 0, launch.said()[-5000:]
        printed = json.loads(launch.output.read_text())
        assert isinstance(printed, dict)
        return printed

    def observe(self, launch: Launch) -> None:
        """Look who is there with every note, until the driver has ended.

        That nobody is seen says nothing: a process that begins just now shows no mark yet.
        """

        def look() -> bool:
            self.census.observe()
            return False

        self.wait(launch, look)

    def wait(self, launch: Launch, is_time: Callable[[], bool]) -> bool:
        """Return True once it is time, which is looked at with every note; False if it ended."""
        bell = os.open(self.folder / BELL, os.O_RDWR | os.O_NONBLOCK)
        death = os.pidfd_open(launch.driver.pid)
        try:
            while not is_time():
                rung, _, _ = select.select([bell, death], [], [])
                if death in rung:
                    return False
                os.read(bell, 1 << 16)
            return True
        finally:
            os.close(bell)
            os.close(death)

    def kill(self, launch: Launch, *, tree: bool = False) -> None:
        """Kill a driver, and nobody else; return once nothing of it runs any more.

        With `tree`, kill everything that came of it too, as when a machine goes down.
        """
        found = self.census.observe()
        launch.driver.kill()
        for pid in found if tree else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.settle(launch)

    def settle(self, launch: Launch) -> None:
        """Wait for the end of a driver and of what it started; fail if something does not end."""
        launch.driver.wait()
        deadline = time.monotonic() + PATIENCE_S
        while left := self.census.processes():
            assert time.monotonic() < deadline, self.census.leftovers().processes
            for pid in left:
                wait_for_end(pid, deadline - time.monotonic())

    def end_all(self) -> None:
        for launch in self.launches:
            launch.driver.kill()
            launch.driver.wait()
        for pid in self.census.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # ------------------------------------------------------------------ what it came to

    def acknowledged(self) -> list[int]:
        """Return the steps that a worker was told are durable."""
        return sorted({fact["step"] for fact in self.noted("acknowledged")})

    def is_nothing_lost(self) -> bool:
        """Whether every worker began at or after the newest step acknowledged before it began."""
        newest = -1
        for line in self.notes.read_text().splitlines() if self.notes.exists() else []:
            fact = json.loads(line)
            if fact["what"] == "acknowledged":
                newest = max(newest, fact["step"])
            elif fact["what"] == "began" and fact["step"] < newest:
                return False
        return True

    def kept(self) -> list[int]:
        """Return the steps of the checkpoints there are, in the order they were made."""
        record = look(open_store(self.run)).record
        return [kept.metrics["step"] for _, kept in sorted(record.kept.items())]

    def history(self) -> list[int]:
        """Return the steps that the metrics tell of."""
        table = Result.from_path(self.run).metrics_dataframe
        assert list(table.index) == list(range(1, len(table) + 1))
        return [int(step) for step in table["step"]]

    def must_be_whole(self, steps: int) -> None:
        """Fail unless the run has every step once, nothing was lost, and nothing is left over."""
        assert self.is_nothing_lost()
        assert all(fact["alive"] == [] for fact in self.begun()), "an attempt met an earlier one"
        assert set(self.acknowledged()) <= set(self.kept())
        assert self.kept() == [*range(steps)]
        assert self.history() == [*range(steps)]
        command = [sys.executable, "-m", "holdfast.cli", "verify", str(self.run)]
        verified = subprocess.run(command, capture_output=True, text=True, check=False)
        assert verified.returncode == 0, verified.stdout
        assert verified.stdout.startswith("whole: ") and len(verified.stdout.splitlines()) == 1
        assert self.census.pids and self.census.sockets, "the census has seen nobody"
        left = self.census.leftovers()
        assert not left, left


def wait_for_end(pid: int, timeout_s: float) -> None:
    """Return once a process has ended, or the time is over."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([handle], [], [], max(0.0, timeout_s))
    os.close(handle)


STEPS = 40  # of the script with torch, always, so that there is one result to come to


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the weights of the script with torch come to if nothing happens to it."""
    campaign = Campaign(tmp_path_factory.mktemp("undisturbed"), TORCH)
    weights = campaign.finish(steps=STEPS)["weights"]
    campaign.must_be_whole(STEPS)
    assert isinstance(weights, str)
    return weights


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[Campaign]:
    campaign = Campaign(tmp_path, TOY)
    yield campaign
    campaign.end_all()


@pytest.fixture
def torch_run(tmp_path: Path) -> Iterator[Campaign]:
    campaign = Campaign(tmp_path, TORCH)
    yield campaign
    campaign.end_all()

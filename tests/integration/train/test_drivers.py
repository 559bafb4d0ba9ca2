"""Drivers that are killed or interrupted, and the same command given again."""

from __future__ import annotations

import json
import os
import random
import secrets
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import train
from holdfast.control.record.litter import find_litter
from holdfast.control.record.run_view import look, verify
from holdfast.storage.locate import open_store
from holdfast.train import Checkpoint, Result
from tests.families import end_family
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import BELL, begin, die, is_first, is_running, note, save
from tests.integration.train.script import WORKERS, next_weights
from tests.patience import wait_until

MARK = "HOLDFAST_TEST_LAUNCH"


class Launcher:
    """Launches the script, and finds every process that came of it by a mark they inherit."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._mark = secrets.token_hex(8)
        self.temporary = lab.folder / "tmp"
        self.temporary.mkdir()

    def __call__(
        self, steps: int, *, storage: Path | None = None, name: str = "run"
    ) -> subprocess.Popen[str]:
        place = [str(storage or self._lab.storage), name, str(steps), str(self._lab.notes)]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.integration.train.script", *place],
            env={**os.environ, MARK: self._mark, "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, steps: int, *, storage: Path | None = None, name: str = "run") -> str:
        """Run the script to its end and return what it printed."""
        process = self(steps, storage=storage, name=name)
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        return output.strip()

    def kill(self, driver: subprocess.Popen[str]) -> None:
        """Kill a driver, and no one else; return once nothing of it runs any more.

        What it was about to start when it was killed is in no list of its children.
        """
        end(driver, signal.SIGKILL)
        wait_until(lambda: not self.processes(), "processes outlive their driver")

    def processes(self) -> list[int]:
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if self._is_marked(path)]

    def _is_marked(self, process: Path) -> bool:
        try:
            return f"{MARK}={self._mark}".encode() in (process / "environ").read_bytes()
        except OSError:
            return False  # ended while we looked, or another user's


@pytest.fixture
def launch(lab: Lab) -> Iterator[Launcher]:
    launcher = Launcher(lab)
    yield launcher
    for process in launcher.processes():
        os.kill(process, signal.SIGKILL)


def wait_for_step(lab: Lab, step: int, driver: subprocess.Popen[str]) -> None:
    """Return once this step has been acknowledged to a worker."""
    path = lab.notes.with_name(BELL)
    if not path.exists():
        os.mkfifo(path)
    bell, death = os.open(path, os.O_RDWR | os.O_NONBLOCK), os.pidfd_open(driver.pid)
    while acknowledged(lab) < step:
        rung, _, _ = select.select([bell, death], [], [])
        assert death not in rung, driver.communicate()[1]
        os.read(bell, 1 << 16)
    os.close(bell)
    os.close(death)


def end(process: subprocess.Popen[str], number: int) -> int:
    end_family(process, number)
    return process.returncode


def weights_after(steps: int, rank: int) -> str:
    """Return what an undisturbed run comes to."""
    weights = ""
    for step in range(steps):
        weights = next_weights(weights, step, rank)
    return weights


def acknowledged(lab: Lab) -> int:
    """Return the newest step whose `report` has returned on any rank, -1 if there is none."""
    return max((fact["step"] for fact in lab.noted("acknowledged")), default=-1)


# ---------------------------------------------------------------------- killed


@pytest.mark.req("T-016", "T-014", "T-066", "T-067", "T-071", "T-074")
def test_the_same_command_carries_on_after_the_driver_was_killed(
    lab: Lab, launch: Launcher
) -> None:
    driver = launch(1000)
    wait_for_step(lab, 2, driver)
    workers = [fact["pid"] for fact in lab.begun()]

    launch.kill(driver)
    reached = acknowledged(lab)
    printed = launch.finish(reached + 3)

    assert not any(is_running(pid) for pid in workers)
    assert all(fact["step"] >= reached for fact in lab.begun()[WORKERS:])
    assert printed == weights_after(reached + 3, 0)


@pytest.mark.req("T-012")
def test_a_run_whose_driver_is_killed_again_and_again_ends_as_if_nothing_had_happened(
    lab: Lab, launch: Launcher
) -> None:
    """Half of the kills come at any time after the launch, half soon after a new step."""
    chance = random.Random(3)
    kills = 0
    while kills < 14:
        before = acknowledged(lab)
        driver = launch(100_000)
        if kills % 2:
            wait_for_step(lab, before + 1, driver)
        with pytest.raises(subprocess.TimeoutExpired):
            driver.wait(chance.uniform(0.0, 0.1 if kills % 2 else 0.8))
        launch.kill(driver)
        kills += 1
        assert is_nothing_lost(lab)
    steps = acknowledged(lab) + 5
    printed = launch.finish(steps)

    assert is_nothing_lost(lab)
    assert printed == weights_after(steps, 0)
    view = look(open_store(lab.run))
    assert [kept.metrics["step"] for _, kept in sorted(view.record.kept.items())] == [*range(steps)]
    assert weights_in(Result.from_path(lab.run).checkpoint) == [
        weights_after(steps, rank) for rank in range(WORKERS)
    ]


def is_nothing_lost(lab: Lab) -> bool:
    """Whether every worker began at or after the newest step acknowledged before it began."""
    newest = -1
    for line in lab.notes.read_text().splitlines() if lab.notes.exists() else []:
        fact = json.loads(line)
        if fact["what"] == "acknowledged":
            newest = max(newest, fact["step"])
        elif fact["what"] == "began" and (-1 if fact["step"] is None else fact["step"]) < newest:
            return False
    return True


def weights_in(checkpoint: Checkpoint | None) -> list[str]:
    assert checkpoint is not None
    with checkpoint.as_directory() as folder:
        return [Path(folder, f"weights-{rank}").read_text() for rank in range(WORKERS)]


def test_a_killed_driver_leaves_nothing_behind_once_the_run_was_opened_again(
    lab: Lab, launch: Launcher
) -> None:
    """Temporary folders of the training function itself are its own to clean up."""
    for _ in range(3):
        before = acknowledged(lab)
        driver = launch(100_000)
        wait_for_step(lab, before + 1, driver)
        launch.kill(driver)
    for of_the_loop in launch.temporary.glob("tmp*"):
        shutil.rmtree(of_the_loop)
    launch.finish(acknowledged(lab) + 2)

    store = open_store(lab.run)
    view = look(store)
    assert launch.processes() == []
    assert list(launch.temporary.iterdir()) == []
    assert [path for path in lab.run.rglob("*") if path.is_socket()] == []
    assert list((lab.run / ".holdfast" / "staging").iterdir()) == []
    assert find_litter(store, view.identity.run_id, view.record) == []
    assert verify(view).damaged == {}


@pytest.mark.req("T-015", "T-068")
def test_ctrl_c_stops_the_workers_and_the_same_command_carries_on(
    lab: Lab, launch: Launcher
) -> None:
    driver = launch(1000)
    wait_for_step(lab, 1, driver)

    code = end(driver, signal.SIGINT)
    left = launch.processes()
    reached = acknowledged(lab)
    printed = launch.finish(reached + 2)

    assert code == -signal.SIGINT, "shells and schedulers are to see that it was interrupted"
    assert left == []
    assert all(fact["step"] >= reached for fact in lab.begun()[WORKERS:])
    assert printed == weights_after(reached + 2, 0)


# ---------------------------------------------------------------------- what a run is known by


@pytest.mark.req("T-017", "T-038", "T-070", "T-072", "T-073")
def test_the_folder_of_a_run_is_all_that_is_needed_to_carry_on(lab: Lab, launch: Launcher) -> None:
    """It is moved elsewhere, and all other files that were ever made are lost."""
    driver = launch(1000)
    wait_for_step(lab, 2, driver)
    launch.kill(driver)
    reached = acknowledged(lab)
    elsewhere = lab.folder / "elsewhere"
    elsewhere.mkdir()
    lab.run.rename(elsewhere / "run")
    for lost in (lab.storage, launch.temporary):
        shutil.rmtree(lost)
    launch.temporary.mkdir()

    printed = launch.finish(reached + 2, storage=elsewhere)

    assert all(fact["step"] >= reached for fact in lab.begun()[WORKERS:])
    assert printed == weights_after(reached + 2, 0)


@pytest.mark.req("T-075", "T-090")
def test_nothing_but_the_pair_must_be_the_same(lab: Lab) -> None:
    """Function, config, number of workers, budget and retention are those of each launch."""
    notes = lab.notes
    keep_one = train.CheckpointConfig(num_to_keep=1)

    def loop() -> None:
        begin(notes)
        save(0)

    def another(config: dict[str, int]) -> int:
        step = begin(notes)
        save(step)
        if step == 1:
            raise ValueError("which the budget of the first launch would not absorb")
        return step + config["more"]

    lab.fit(loop, workers=3)
    result = lab.fit(
        another, workers=2, config={"more": 10}, max_failures=1, checkpoint_config=keep_one
    )

    assert result.return_value == 12
    assert [fact["world_size"] for fact in lab.begun()[3:]] == [2] * 4
    assert lab.committed() == ["checkpoint_000002"]
    assert look(open_store(lab.run)).identity.name == "run"


@pytest.mark.req("T-076")
@pytest.mark.parametrize("other", ["name", "storage_path"])
def test_another_name_or_another_path_is_another_run(lab: Lab, other: str) -> None:
    notes = lab.notes

    def loop() -> None:
        for step in range(begin(notes), 2):
            save(step)

    lab.fit(loop)
    another: dict[str, Any] = {"name": "b", "storage_path": str(lab.folder / "b")}
    lab.fit(loop, **{other: another[other]})
    lab.fit(loop)

    assert [fact["step"] for fact in lab.begun()] == [None, None, 1]


@pytest.mark.req("T-053")
@pytest.mark.parametrize("name", ["unique_run_id=da823d5", "0f8fad5bd9cb469fa16570867728950e"])
def test_a_run_may_be_named_by_an_id(lab: Lab, name: str) -> None:
    result = lab.fit(lambda: train.get_context().get_experiment_name(), name=name)

    assert result.return_value == name
    assert (lab.storage / name).is_dir()


@pytest.mark.req("T-085")
def test_the_record_of_a_run_grows_with_every_checkpoint(lab: Lab) -> None:
    run, notes = lab.run, lab.notes

    def loop() -> None:
        for step in range(3):
            save(step)
            kept = look(open_store(run)).record.kept.values()
            note(notes, what="kept", steps=[one.metrics["step"] for one in kept])

    lab.fit(loop)

    assert [fact["steps"] for fact in lab.noted("kept")] == [[0], [0, 1], [0, 1, 2]]


SECRET = "a text that only the function knows"


def keep_a_secret() -> str:
    save(0)
    return SECRET


@pytest.mark.req("T-089")
def test_no_code_and_no_pickle_is_kept_of_a_function_that_can_be_imported(lab: Lab) -> None:
    assert lab.fit(keep_a_secret).return_value == SECRET

    files = [path for path in lab.run.rglob("*") if path.is_file()]
    assert files
    assert not any(SECRET.encode() in path.read_bytes() for path in files)
    assert not any(path.read_bytes().startswith(b"\x80") for path in files)


def test_a_killed_driver_is_not_charged_to_the_run(lab: Lab, launch: Launcher) -> None:
    """Not a single failure is allowed, and the driver is killed twice."""
    for _ in range(2):
        before = acknowledged(lab)
        driver = launch(1000)
        wait_for_step(lab, before + 1, driver)
        launch.kill(driver)

    assert launch.finish(acknowledged(lab) + 1)


def test_a_failed_run_that_is_launched_again_begins_with_a_full_budget(lab: Lab) -> None:
    notes = lab.notes

    def loop() -> str:
        begin(notes)
        if is_first(notes.with_name("one")) or is_first(notes.with_name("two")):
            die("ValueError")
        note(notes, what="done")
        return "done"

    with pytest.raises(train.WorkerGroupError, match="loss is nan"):
        lab.fit(loop)
    result = lab.fit(loop, max_failures=1)

    assert result.return_value == "done"
    assert len(lab.begun()) == 3

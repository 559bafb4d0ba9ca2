"""A study whose driver and trials are killed again and again loses nothing and repeats nothing."""

from __future__ import annotations

import csv
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.faults.campaign.study_script import STEPS
from tests.patience import PATIENCE_S
from tests.unit.tune.logger.event_reader import read_events

SCRIPT = "tests.faults.campaign.study_script"
# Trials, and kills of their driver.
SIZES = [(100, 25), pytest.param((200, 50), marks=pytest.mark.long)]
# Of the notes between two kills, at most: so that all of them come in time. The journal is not as
# good to tell how far a study is: it shrinks.
GROWTH_BYTES = {"function": 1200, "class": 500}

pytestmark = pytest.mark.slow


def launch(folder: Path, kind: str, trials: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.faults.campaign.study_script",
            str(folder),
            kind,
            str(trials),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "STUDY_OF": str(folder)},
    )


def size_of_notes(folder: Path) -> int:
    notes = folder / "notes"
    return notes.stat().st_size if notes.exists() else 0


def states_in(folder: Path) -> int:
    """Return of how many states there are marks in the journal."""
    files = (folder / "study" / ".holdfast" / "journal").glob("*.jsonl")
    return sum(one.read_bytes().count(b'"state_taken"') for one in files)


def survivors(folder: Path) -> list[str]:
    """Return the processes that a launch has left; those that are ending get the time for it."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("STUDY_OF") == str(folder):
                found.append(process)
        except psutil.Error:
            continue
    _, alive = psutil.wait_procs(found, timeout=PATIENCE_S)
    return [" ".join(one.cmdline()) for one in alive]


def await_growth(driver: subprocess.Popen[str], folder: Path, size: int) -> None:
    """Return once the notes have grown to `size`, or the driver has ended."""
    deadline = time.monotonic() + PATIENCE_S
    end = os.pidfd_open(driver.pid)
    try:
        while size_of_notes(folder) < size and not select.select([end], [], [], 0.001)[0]:
            assert time.monotonic() < deadline, "it makes no progress"
    finally:
        os.close(end)


def kill_a_trial(driver: subprocess.Popen[str], dice: random.Random) -> bool:
    """Kill a process in which a trial runs; return whether there was one."""
    try:
        starters = psutil.Process(driver.pid).children()
        trials = [trial for starter in starters for trial in starter.children()]
        if trials:
            dice.choice(trials).kill()
        return bool(trials)
    except psutil.NoSuchProcess:
        return False


def kill_after_some_progress(
    driver: subprocess.Popen[str], folder: Path, dice: random.Random, growth_max: int
) -> bool:
    """Kill a trial and then the driver after some notes; return whether a trial was."""
    size, growth = size_of_notes(folder), dice.randrange(1, growth_max)
    await_growth(driver, folder, size + dice.randrange(growth))
    hit = kill_a_trial(driver, dice)
    await_growth(driver, folder, size + growth)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    return hit


@pytest.mark.req("U-002")
@pytest.mark.req("U-004")
@pytest.mark.req("U-005")
@pytest.mark.req("U-007")
@pytest.mark.req("U-015")
@pytest.mark.parametrize("kind", ["function", "class"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]} trials")
def test_killed_again_and_again_a_study_loses_nothing_and_repeats_nothing(
    kind: str, size: tuple[int, int], tmp_path: Path
) -> None:
    trials, kills = size
    dice, trials_killed, in_states = random.Random(3), 0, 0
    for _ in range(kills):
        driver = launch(tmp_path, kind, trials)
        trials_killed += kill_after_some_progress(driver, tmp_path, dice, GROWTH_BYTES[kind])
        in_states += states_in(tmp_path) > 0
        assert driver.returncode == -signal.SIGKILL, "the study ended before its last kill"
        assert survivors(tmp_path) == []
    driver = launch(tmp_path, kind, trials)
    out, errors = driver.communicate()

    assert driver.returncode == 0, errors
    assert json.loads(out) == {"trials": trials, "errors": 0}
    assert trials_killed >= kills // 2
    assert in_states >= kills // 4  # the driver had taken a state, and perhaps not written it
    assert len(list(tmp_path.glob("died-*"))) >= trials // 10  # those that killed themselves
    assert survivors(tmp_path) == []
    check_files(tmp_path / "study", trials)
    check_steps(tmp_path, trials)
    check_finished(tmp_path, trials - kills)
    if kind == "function":
        check_acknowledged(tmp_path)


def check_files(study: Path, trials: int) -> None:
    """Every step is once in every file, and no checkpoint is left half."""
    folders = [one for one in study.iterdir() if not one.name.startswith(".")]
    assert len(folders) == trials
    for folder in folders:
        rows = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
        steps = [row["training_iteration"] for row in rows]
        assert steps == list(range(1, len(steps) + 1)), folder
        assert len(steps) in (2, 4, STEPS), steps  # where ASHA stops a trial
        with (folder / "progress.csv").open() as file:
            assert [int(row["training_iteration"]) for row in csv.DictReader(file)] == steps
        [told] = folder.glob("events.out.tfevents.*")  # two would show every step twice
        events = read_events(told.read_bytes())
        numbers = [event.scalars for event in events if event.scalars]
        assert [one["ray/tune/training_iteration"] for one in numbers] == steps, folder
        # Never twice. Now and then a kill between a trial's start and its first row costs them.
        assert [len(event.plugins) for event in events if event.plugins] in ([], [1]), folder
        assert json.loads((folder / "params.json").read_text()) == rows[0]["config"], folder
        assert [row.get("mine", step) for row, step in zip(rows, steps, strict=True)] == steps
        kept = {one.name for one in folder.glob("checkpoint_*")}
        manifests = {one.stem for one in (folder / ".holdfast" / "manifests").glob("*.json")}
        assert kept == manifests, folder
        assert not list(folder.glob(".holdfast/staging/*")), folder


def check_steps(folder: Path, trials: int) -> None:
    """No trial goes back before a checkpoint that was acknowledged: every step is saved.

    A step begins only when the one before it is saved, so it is the least that can begin again.
    """
    reached: dict[str, int] = {}
    for line in (folder / "notes").read_text().splitlines():
        what, trial, *step = line.split()
        if what == "began":
            assert int(step[0]) >= reached.get(trial, 1), line
            reached[trial] = int(step[0])
    assert len(reached) == trials


def check_finished(folder: Path, finished_min: int) -> None:
    """No trial that the driver knew to be finished ran again.

    It can be killed when it knows and has told nobody.
    """
    finished: set[str] = set()
    for line in (folder / "notes").read_text().splitlines():
        what, trial, *_ = line.split()
        if what == "finished":
            finished.add(trial)
        assert what == "finished" or trial not in finished, line
    assert len(finished) > finished_min


def check_acknowledged(folder: Path) -> None:
    """What was acknowledged is kept."""
    last: dict[str, int] = {}
    for line in (folder / "notes").read_text().splitlines():
        if line.startswith("acknowledged"):
            _, trial, said = line.split()
            last[trial] = max(last.get(trial, 0), int(said))
    for trial, step in last.items():
        [home] = (folder / "study").glob(f"*{trial}*")
        rows = (home / "result.json").read_text().splitlines()
        assert len(rows) >= step, f"{trial} had step {step} acknowledged"

"""A seed is a run: the same one in every process, told in one line and in many."""

from __future__ import annotations

import queue
import subprocess
import sys
import tempfile
import threading

import pytest
from click.testing import CliRunner

from holdfast.control.metrics import writer as metric_rows
from holdfast.core.checkpoint.record import RunRecord
from holdfast.storage import locate
from holdfast.worker import context, reporting
from tests.simulation.__main__ import main
from tests.simulation.run import shrunk, simulate
from tests.simulation.story import draw

PRINTED = """
from tests.simulation.run import simulate
for seed in range(12):
    report = simulate(seed)
    print(report.lines, report.turns)
"""
NO_FAULT = 19  # seeds of runs in which nothing goes wrong, and something does
FAULTS = 3


def printed(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRINTED],
        env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a bug that every run with a checkpoint and a second attempt has to meet."""
    monkeypatch.setattr(RunRecord, "usable", lambda self: [])


def test_a_seed_is_the_same_run_in_every_process() -> None:
    once = printed("1")

    assert once
    assert printed("2") == once


def test_a_seed_is_the_same_run_whatever_was_played_before() -> None:
    before = simulate(FAULTS)
    simulate(NO_FAULT)

    again = simulate(FAULTS)

    assert again.lines == before.lines


def test_a_seed_is_the_same_run_when_it_is_played_again() -> None:
    """Its drivers draw the tokens that drivers drew before, who have let go of them since."""
    for _ in range(2):
        assert simulate(137).problem is None


def test_a_run_that_is_fine_says_so() -> None:
    result = CliRunner().invoke(main, ["--seed", str(NO_FAULT)])

    assert result.exit_code == 0
    assert result.output == f"seed {NO_FAULT}: fine\n"


def test_a_story_is_told_line_by_line() -> None:
    result = CliRunner().invoke(main, ["--seed", str(NO_FAULT), "--story"])

    lines = result.output.splitlines()
    assert lines[0].startswith("program: steps=")
    assert lines[1].startswith("setting: workers=")
    assert "     0.000  driver 1 begins" in lines
    assert lines[-1] == f"seed {NO_FAULT}: fine"


@pytest.mark.usefixtures("forgetful")
def test_a_failing_seed_prints_one_line_that_plays_it_again() -> None:
    [seed] = [seed for seed in range(40) if simulate(seed).problem is not None][:1]

    result = CliRunner().invoke(main, ["--seeds", f"{seed}-{seed}"])

    first, second, last = result.output.splitlines()
    assert result.exit_code == 1
    assert first.startswith(f"seed {seed}: ")
    assert second.split() == [
        "python", "-m", "tests.simulation", "--seed", str(seed), "--story",
    ]  # fmt: skip
    assert last.startswith("1 runs, 1 wrong, ")
    again = CliRunner().invoke(main, second.split()[3:])
    assert again.exit_code == 1
    assert again.output.splitlines()[-2] == first


@pytest.mark.usefixtures("forgetful")
def test_faults_that_have_nothing_to_do_with_it_can_be_left_out() -> None:
    many = [seed for seed in range(200) if len(draw(seed).faults) > 3]
    report = next(found for seed in many if (found := simulate(seed)).problem is not None)

    least = shrunk(report)

    assert least.problem is not None
    assert least.without
    numbers = ",".join(map(str, least.without))
    assert f"--without {numbers} " in least.reproduction
    result = CliRunner().invoke(main, least.reproduction.split()[3:])
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].strip() == least.reproduction


@pytest.mark.parametrize(
    "arguments", [[], ["--seed", "1", "--seeds", "1-2"], ["--seeds", "a-b"], ["--seeds", "1-x"]]
)
def test_what_cannot_be_played_is_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)

    assert result.exit_code == 2


def test_the_stand_ins_are_gone_when_a_run_was_played() -> None:
    real = locate.reopen, tempfile.gettempdir()

    simulate(NO_FAULT)

    assert vars(metric_rows)["threading"] is threading
    assert vars(reporting)["queue"] is queue
    assert vars(context)["reopen"] is locate.reopen
    assert (locate.reopen, tempfile.gettempdir()) == real

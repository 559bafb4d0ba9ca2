"""Tests that fail beside others are run once more, alone: what passes then is called flaky."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "repeat_failures.py"

ONCE = """
import os, pathlib, pytest

def is_first(name):
    path = pathlib.Path(name)
    is_new = not path.exists()
    path.touch()
    return is_new
"""
PASSES = "def test_passes(): pass\n"
FAILS = "def test_fails(): assert 0\n"
FLAKY = """
@pytest.mark.parametrize("word", ["a b", "c::d"])
def test_is_flaky(word): assert not is_first(word[0])
"""
DIES = "def test_dies_once():\n    if is_first('dies'): os._exit(3)\n"
BREAKS = """
@pytest.fixture
def broken():
    yield
    assert not is_first("breaks")

def test_breaks_afterwards(broken): pass
"""
SKIPS = "def test_is_skipped(): pytest.skip('no need')\n"


def run(folder: Path, *tests: str, options: tuple[str, ...] = ("-n", "2")) -> tuple[int, list[str]]:
    """Return the exit code and the lines that the tool prints for a module of these tests."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p xdist -p no:cacheprovider\n")
    (folder / "test_module.py").write_text("\n".join([ONCE, *tests]))
    command = [sys.executable, str(TOOL), *options]
    quick = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they take seconds to import
    ran = subprocess.run(
        command, cwd=folder, env=quick, capture_output=True, text=True, check=False
    )
    return ran.returncode, ran.stdout.splitlines()


def named(lines: list[str], mark: str) -> set[str]:
    return {line.removeprefix(mark) for line in lines if line.startswith(mark)}


def test_what_passes_alone_is_called_flaky_and_the_run_is_good(tmp_path: Path) -> None:
    code, lines = run(tmp_path, PASSES, FLAKY, DIES, BREAKS, SKIPS)

    assert code == 0
    assert named(lines, "FLAKY: test_module.py::") == {
        "test_is_flaky[a b]",
        "test_is_flaky[c::d]",
        "test_dies_once",
        "test_breaks_afterwards",
    }
    assert lines[-1].strip("= ").startswith("5 passed, 1 skipped, 4 flaky in ")


def test_what_fails_twice_fails_the_run(tmp_path: Path) -> None:
    code, lines = run(tmp_path, PASSES, FAILS, FLAKY)

    assert code == 1
    assert named(lines, "FAILED TWICE: ") == {"test_module.py::test_fails"}
    assert len(named(lines, "FLAKY: ")) == 2
    assert lines[-1].strip("= ").startswith("1 failed, 3 passed, 2 flaky in ")


@pytest.mark.parametrize(
    ("tests", "options", "code"),
    [
        ([PASSES], ("-n", "0"), 0),
        (["import nothing_of_this_name", PASSES], ("-n", "2"), 1),
        ([PASSES], ("--no-such-option",), 4),
        ([], (), 5),
        ([f"def test_{n}(): assert 0" for n in range(51)], ("-q",), 1),
    ],
    ids=["passes", "cannot be imported", "bad option", "no test", "too many"],
)
def test_what_no_repetition_can_change_is_left_as_pytest_ends_it(
    tmp_path: Path, tests: list[str], options: tuple[str, ...], code: int
) -> None:
    ended, lines = run(tmp_path, *tests, options=options)

    assert ended == code
    assert not any("Once more" in line for line in lines)


def test_a_run_that_ends_early_is_not_made_good_by_what_passes_alone(tmp_path: Path) -> None:
    code, lines = run(tmp_path, FLAKY, PASSES, options=("-x",))

    assert code != 0
    assert len(named(lines, "FLAKY: ")) <= 1

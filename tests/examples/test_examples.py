"""The README and the older examples do what they say."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.examples.pages import (
    ROOT,
    blocks_in,
    commands_in,
    is_like,
    run_command,
    run_python,
)

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_loop_of_the_readme_runs_as_it_stands_and_carries_on_when_it_runs_again(
    tmp_path: Path,
) -> None:
    loop, _ = [block.text for block in blocks_in(README) if block.language == "python"]
    assert sum(1 for line in loop.splitlines() if line) <= 28, "it is the smallest there is"

    first = run_python(loop, tmp_path)
    assert first.returncode == 0, first.stderr
    for block in blocks_in(README):
        if block.language == "console":
            for command, said in commands_in(block):
                assert is_like(run_command(command, tmp_path), said), command
    longer = run_python(loop.replace("range(done, 10)", "range(done, 11)"), tmp_path)

    assert longer.returncode == 0, longer.stderr
    run = tmp_path / "runs" / "first"
    assert re.fullmatch(r"holdfast: run 'first' is new; [^\n]*\n", first.stderr), "nothing else"
    assert "carries on from checkpoint_000009" in longer.stderr
    assert len(list(run.glob("checkpoint_*"))) == 11, "ten, and one more"


def test_the_search_of_the_readme_runs_as_it_stands_and_has_nothing_to_do_when_it_runs_again(
    tmp_path: Path,
) -> None:
    _, search = [block.text for block in blocks_in(README) if block.language == "python"]
    [call] = re.findall(r"`(tune\.Tuner\.restore\([^`]*)`", README)
    function = search.partition("tuner = ")[0]

    first = run_python(search, tmp_path)
    assert first.returncode == 0, first.stderr
    logs = sorted(tmp_path.glob("runs/search/*/logs/attempt-*.log"))
    again = run_python(search, tmp_path)
    restored = run_python(f"{function}\nprint({call}.get_best_result().config)", tmp_path)

    assert len(logs) == 8
    assert re.fullmatch(r"\{'lr': 0\.\d+\}\n", first.stdout)
    assert (again.returncode, again.stdout) == (0, first.stdout), again.stderr
    assert (restored.returncode, restored.stdout) == (0, first.stdout), restored.stderr
    assert sorted(tmp_path.glob("runs/search/*/logs/attempt-*.log")) == logs


def test_the_readme_shows_what_the_demo_prints() -> None:
    demo: dict[str, Any] = runpy.run_path(str(ROOT / "examples" / "demo.py"))
    attempts = [
        demo["Attempt"](1, 0, 20, "rank 1 killed", ended=1.0, back_ms=332),
        demo["Attempt"](2, 16, 37, "driver killed", ended=2.0, back_ms=5404),
        demo["Attempt"](3, 32, 48),
    ]
    shown = [*demo["picture"](attempts, 48, 8), "", *demo["table"](attempts)]

    [text] = [block.text for block in blocks_in(README) if block.language == "text"]
    assert text.splitlines() == shown


def test_every_make_target_that_the_readme_names_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.findall(r"^make (\w+)", README, re.MULTILINE)

    assert named and all(f"\n{name}: ## " in makefile for name in named)


def test_the_readme_names_the_extras_there_are() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = project.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    extras = re.findall(r"^(\w+) = ", table, re.MULTILINE)
    [told] = [text for text in README.split("\n\n") if text.startswith("Extras ")]

    assert extras and all(f"`{name}`" in told for name in extras)


@pytest.mark.slow
def test_saves_survive_being_killed_half_way() -> None:
    command = [sys.executable, str(ROOT / "examples" / "survive_kill.py"), "--kills", "2"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)

    assert ran.stdout.count("kill -9 while step") == 2
    assert ran.stdout.splitlines()[-1].startswith("Done: 2 kills in the middle of a save")

"""Scripts that are watched: one that hangs, one that ends early, one that leaves children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench.program import SCRIPTS, Program, ProgramFailed
from bench.question import Question, Setting, Side

MARKS = f"import os, sys, time\nsys.path.insert(0, {str(SCRIPTS)!r})\nfrom marks import mark\n"
READY = "mark('.', 'ready')\n"
FOREVER = "time.sleep(600)\n"


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.kill()


def start(programs: list[Program], folder: Path, code: str) -> Program:
    program = Program([sys.executable, "-c", MARKS + code], folder, environment={})
    programs.append(program)
    return program


def test_a_script_that_hangs_fails_in_its_time(programs: list[Program], tmp_path: Path) -> None:
    program = start(programs, tmp_path, FOREVER)

    with pytest.raises(ProgramFailed, match=r"still ran after .* s without ready"):
        program.await_marks("ready", within_s=0.2)


def test_a_script_that_ends_early_fails_at_once_and_its_words_are_told(
    programs: list[Program], tmp_path: Path
) -> None:
    program = start(programs, tmp_path, "print('out of luck'); sys.exit(3)\n")

    with pytest.raises(ProgramFailed, match=r"ended with code 3 without ready:\n  out of luck"):
        program.await_marks("ready")


def test_a_mark_that_was_left_just_before_the_end_is_seen(
    programs: list[Program], tmp_path: Path
) -> None:
    program = start(programs, tmp_path, READY)

    [found] = program.await_marks("ready")

    assert found["pid"] == program.pid


def test_children_of_children_end_with_the_script(programs: list[Program], tmp_path: Path) -> None:
    code = f"os.fork() or (os.setsid(), os.fork())\n{READY}{FOREVER}"
    program = start(programs, tmp_path, code)
    program.await_marks("ready")

    program.kill()

    assert program.pids() == []


def test_waiting_for_a_time_fails_if_the_script_ends_before(
    programs: list[Program], tmp_path: Path
) -> None:
    program = start(programs, tmp_path, "")

    with pytest.raises(ProgramFailed, match="ended with code 0"):
        program.must_run_until(time.time() + 60)


def test_the_bench_knows_its_questions_and_refuses_what_it_does_not(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--only", "no-such-question"]

    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_root())

    assert ran.returncode == 2
    assert "no question has 'no-such-question' in its name" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--publish", "--quick"], "only a full run is published"),
        (["--results", "x.json"], "--results are there to be published"),
        (["--keep"], "a baseline is of a quick run"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], why: str) -> None:
    command = [sys.executable, "-m", "bench", *arguments]

    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_root())

    assert ran.returncode == 2
    assert why in ran.stderr


def test_a_question_is_asked_from_end_to_end(tmp_path: Path) -> None:
    written = tmp_path / "results.json"
    command = [sys.executable, "-m", "bench", "--quick", "--only", "import", "--rounds", "1"]

    ran = subprocess.run(
        [*command, "--json", str(written), "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=_root(),
        env={**os.environ, "PYTHONPATH": "src"},
    )

    assert ran.returncode == 0, ran.stderr
    found = json.loads(written.read_text())["questions"]["import"]
    assert found["is_quick"]
    assert found["sides"] == ["holdfast", "checkpoint", "bare"]
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_a_run_that_has_something_to_show_leaves_a_picture_beside_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def launch(_: Setting) -> Iterator[Question]:
        sides = [Side("holdfast", lambda: 1.0), Side("torchrun", lambda: 2.0)]
        yield Question("how soon", "s", sides, [])

    monkeypatch.setattr(bench, "QUESTIONS", {"launch": launch})
    monkeypatch.setattr(tempfile, "tempdir", None)  # these three are put back, whatever becomes
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    written = tmp_path / "results.json"

    ended = bench.main(["--quick", "--json", str(written), "--folder", str(tmp_path)])

    assert ended == 0
    assert "2×" in written.with_suffix(".svg").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "results.svg"}


def _root() -> Path:
    return Path(__file__).parents[3]

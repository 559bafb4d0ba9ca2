"""The demo: what a new user sees first must work everywhere, and must not flatter."""

from __future__ import annotations

import io
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.train import Result
from tests.examples.pages import ROOT

DEMO = ROOT / "examples" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> dict[str, Any]:
    """What the script defines."""
    return runpy.run_path(str(DEMO))


@pytest.mark.slow
@pytest.mark.req("T-016", "T-067", "T-083")
def test_a_worker_and_the_driver_are_killed_and_the_run_finishes_with_the_same_weights(
    tmp_path: Path,
) -> None:
    command = [sys.executable, str(DEMO), "--epochs", "3", "--steps", "4", "--keep", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    told = ran.stdout

    assert ran.returncode == 0, told + ran.stderr
    assert ran.stderr == ""
    assert re.findall(r"kill -9 \d+   # (\w+ ?1?), after step", told) == ["rank 1", "driver"]
    assert "rank 1 of 2 was killed by SIGKILL" in told, "the failure card"
    assert told.count("$ python ") == 2, "the same command, given again"
    assert re.search(r"attempt 1  rank 1 killed +\d+ +\d steps? +[\d,]+ ms\n", told)
    assert re.search(r"attempt 2  driver killed +\d+ +\d steps? +[\d,]+ ms \*\n", told)
    assert re.search(r"attempt 3  finished +12\n", told)
    weights = re.findall(r"([0-9a-f]{16})…", told)
    assert len(weights) == 2 and weights[0] == weights[1]
    assert re.search(r"\nFinished in \d+ s: ", told)
    assert "\x1b" not in told, "nobody looks at a terminal"
    wide = [line for line in told.splitlines() if len(line) > 80 and str(tmp_path) not in line]
    assert not wide

    rows = Result.from_path(tmp_path / "demo").metrics_dataframe
    saved = rows[rows["step"] % 4 == 0]
    assert saved["step"].tolist() == [4, 8, 12], "each once"
    assert saved["attempt"].tolist() == [1, 2, 3], "by the attempt that saved it"
    assert _processes_of(tmp_path) == []


def _processes_of(folder: Path) -> list[str]:
    found = (one.info["cmdline"] or [] for one in psutil.process_iter(["cmdline"]))
    return [" ".join(words) for words in found if any(str(folder) in word for word in words)]


# ---------------------------------------------------------------------- what it draws


def attempts(demo: dict[str, Any], *facts: tuple[int, int, bool]) -> list[Any]:
    """Return attempts: the step each began after, the last it did, whether it was killed."""
    return [
        demo["Attempt"](
            number,
            after,
            reached,
            end="driver killed" if is_killed else "finished",
            ended=float(number) if is_killed else None,
            back_ms=1234.5 if is_killed else None,
        )
        for number, (after, reached, is_killed) in enumerate(facts, 1)
    ]


def test_a_bar_shows_what_was_saved_what_was_lost_and_where_it_died(demo: dict[str, Any]) -> None:
    drawn = demo["picture"](attempts(demo, (0, 6, True), (4, 8, False)), steps=8, epoch=4)

    assert drawn[1:] == [
        "  attempt 1  ████░░✖",
        "  attempt 2      ████",
        "  step       0   4   8",
    ]


def test_a_kill_that_cost_nothing_is_drawn_without_a_loss(demo: dict[str, Any]) -> None:
    those = attempts(demo, (0, 4, True), (4, 8, False))

    assert demo["picture"](those, steps=8, epoch=4)[1] == "  attempt 1  ████✖"
    assert "0 steps" in demo["table"](those)[1]


def test_many_steps_share_the_columns_there_are(demo: dict[str, Any]) -> None:
    those = attempts(demo, (0, 700, True), (600, 1000, False))

    drawn = demo["picture"](those, steps=1000, epoch=10)
    assert max(map(len, drawn)) <= 80
    assert drawn[2] == "  attempt 2  " + " " * 36 + "█" * 24


def test_a_terminal_that_knows_no_blocks_gets_letters(
    demo: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    drawn = demo["picture"](attempts(demo, (0, 6, True), (4, 8, False)), steps=8, epoch=4)

    assert drawn[1] == "  attempt 1  ====..x"


@pytest.mark.parametrize(
    ("is_terminal", "no_color", "is_coloured"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_there_are_colours_only_where_somebody_looks(
    demo: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    is_terminal: bool,
    no_color: bool,
    is_coloured: bool,
) -> None:
    stdout = io.StringIO()
    monkeypatch.setattr(stdout, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setenv("NO_COLOR", "1") if no_color else monkeypatch.delenv("NO_COLOR", False)
    demo["say"]("one", "", style="31")

    assert stdout.getvalue() == ("\x1b[31mone\x1b[0m\n\n" if is_coloured else "one\n\n")


def test_a_card_made_for_wide_screens_is_wrapped_by_paragraphs(demo: dict[str, Any]) -> None:
    card = [
        "── attempt 1 of run 'demo' lost ───",
        "  try      somebody" + " somebody" * 8,
        "           sent it",
        "  log      /a/" + "very-long-path/" * 6,
    ]

    assert demo["rewrapped"](card) == [
        "── attempt 1 of run 'demo' lost ───",
        "  try      somebody somebody somebody somebody somebody somebody somebody",
        "           somebody somebody sent it",
        "  log",
        "           /a/" + "very-long-path/" * 6,
    ]

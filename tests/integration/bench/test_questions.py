"""The bench asks what it is there to ask: our sides and the limits, with as little work as can be.

Nothing is said here of how fast anything is; that is what the bench is for.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench.__main__ import MORE, QUESTIONS
from bench.question import MIB, Scale, Setting
from bench.runner import ask

TINY = Scale(
    saved_bytes=MIB,
    files=20,
    events=2_000,
    growth=(200, 1_000),
    rounds=1,
    launches=1,
    slow_peers=False,
)
HERE = (
    "commit-many",
    "commit-one",
    "restore-one",
    "restore-many",
    "journal",
    "journal-growth",
    "replay",
    "import",
    "tune-trials",
    "report-checkpoint",  # with torch
)
# Other loops in the same kinds of scripts.
LONG = (
    "launch",
    "data-memory",
    "recovery-worker",
    "report-metrics",
    "blocked-disk",
    "tune-classes",
    "tune-profile",
    "tune-restore",
    "tune-scale",
)
# The same scripts, longer; or with a server that other tests start often enough.
NOT_HERE = {
    "launch-step",
    "recovery-driver",
    "redone",
    "goodput",
    "memory",
    "blocked-s3",
    "upload-one",
    "upload-mixture",
    *MORE,
}


def test_no_question_is_forgotten_here() -> None:
    assert {*HERE, *LONG, *NOT_HERE} == {*QUESTIONS, *MORE}


@pytest.mark.parametrize(
    "name", [*HERE, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)]
)
def test_a_question_is_answered_for_all_sides_that_are_ours_or_a_limit(
    name: str, tmp_path: Path
) -> None:
    with QUESTIONS[name](Setting(tmp_path, TINY)) as question:
        answer = ask(name, replace(question, warms_up=False), rounds=1)

    measured = {side.name for side in answer.sides()}  # a peer may fail, and is left out then
    assert measured >= {side.name for side in question.sides if side.is_ours}
    figures = [figure for one in answer.rounds for figure in one.values()]
    assert figures and all(map(math.isfinite, figures))

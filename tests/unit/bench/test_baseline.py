"""What has moved since a baseline was kept: ratios alone, and only beyond the noise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import baseline
from bench.question import Bar, Claim, Question, Side, at_least, at_most, ratio, value
from bench.runner import Answer


def answer(name: str, figures: Sequence[float], bar: Bar | None = None) -> Answer:
    """Return an answer in which a peer took so many times what we took."""
    sides = [Side("holdfast", lambda: 1.0), Side("peer", lambda: 1.0)]
    claims = [
        Claim("times", ratio("peer", "holdfast"), bar),
        Claim("seconds", value("peer")),
    ]
    rounds = [{"holdfast": 1.0, "peer": figure} for figure in figures]
    return Answer(name, Question("?", "s", sides, claims), rounds, (0.0, 0.0), {})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "baseline.json"
    baseline.keep(path, [answer("launch", [2.0, 2.1, 2.2])], {"processor": "one"})
    return path


@pytest.mark.parametrize(
    ("bar", "word"), [(at_least(1), "WORSE"), (at_most(9), "better"), (None, "moved")]
)
def test_a_ratio_that_has_moved_is_told_with_what_it_means(
    path: Path, bar: Bar | None, word: str
) -> None:
    [move] = baseline.moves(path, [answer("launch", [1.0, 1.1, 1.2], bar)])

    assert str(move) == f"{word}: launch, times: was 2.1, is 1.1"


@pytest.mark.parametrize("figures", [[1.9, 2.0, 2.05], [1.0, 1.2, 2.1], [1.95, 1.97, 1.99]])
def test_noise_is_no_move(path: Path, figures: list[float]) -> None:
    assert baseline.moves(path, [answer("launch", figures)]) == []


def test_a_question_that_is_new_is_not_compared_and_is_named(path: Path) -> None:
    new = answer("tune-trials", [9.0, 9.0, 9.0])

    assert baseline.moves(path, [new]) == []
    assert baseline.unknown(path, [new]) == ["tune-trials"]


def test_to_keep_some_questions_leaves_the_others(path: Path) -> None:
    baseline.keep(path, [answer("memory", [3.0, 3.0, 3.0])], {"processor": "one"})

    assert baseline.unknown(path, [answer("launch", [1.0]), answer("memory", [1.0])]) == []

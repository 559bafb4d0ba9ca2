"""Scores with a prefix: what "min-loss" means depends on what is reported."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.checkpoint.retention import Candidate, Retention, ranked


def order(metrics: list[dict[str, Any]], score: str, *, highest_first: bool = True) -> list[int]:
    candidates = [Candidate(number, reported) for number, reported in enumerate(metrics)]
    policy = Retention(keep=1, score=score, highest_first=highest_first)
    return [candidate.number for candidate in ranked(policy, candidates)]


@pytest.mark.parametrize("highest_first", [True, False])
def test_a_prefix_says_what_is_best_of_the_metric_after_it(highest_first: bool) -> None:
    losses: list[dict[str, Any]] = [{"loss": 2}, {"loss": 1}, {"loss": 3}]

    assert order(losses, "min-loss", highest_first=highest_first) == [2, 0, 1]
    assert order(losses, "max-loss", highest_first=highest_first) == [1, 0, 2]


def test_a_metric_of_the_whole_name_wins() -> None:
    both = [{"max-auc": 1, "auc": 3}, {"max-auc": 2, "auc": 2}, {"max-auc": 3, "auc": 1}]

    assert order(both, "max-auc") == [0, 1, 2]
    assert order(both, "max-auc", highest_first=False) == [2, 1, 0]


def test_one_checkpoint_with_the_whole_name_decides_for_all() -> None:
    """Otherwise two scales would be mixed."""
    some: list[dict[str, Any]] = [{"auc": 9}, {"auc": 8, "max-auc": 1}, {"auc": 7}]

    assert order(some, "max-auc") == [0, 2, 1]


def test_a_prefix_and_a_nested_metric() -> None:
    nested: list[dict[str, Any]] = [{"eval": {"loss": 1}}, {"eval": {"loss": 2}}]

    assert order(nested, "min-eval/loss") == [1, 0]


@pytest.mark.parametrize("score", ["minimum", "max", "loss-min-", "min_loss"])
def test_what_only_looks_like_a_prefix_is_a_name(score: str) -> None:
    assert order([{score: 2}, {score: 1}], score) == [1, 0]

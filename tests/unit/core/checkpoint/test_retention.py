"""Retention as specified in spec/train.md 2.7, and right where Ray is wrong."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from holdfast.core.checkpoint.retention import (
    Candidate,
    Retention,
    dispensable,
    ranked,
    score_of,
    unscored,
)
from holdfast.errors import ConfigError

INF, NAN = math.inf, math.nan


def scored(*scores: Any, pinned: tuple[int, ...] = ()) -> list[Candidate]:
    """Return candidates numbered from 0; `...` stands for a score that is missing."""
    return [
        Candidate(number, {} if score is ... else {"acc": score}, number in pinned)
        for number, score in enumerate(scores)
    ]


def best(keep: int | None) -> Retention:
    return Retention(keep=keep, score="acc")


def test_without_a_number_to_keep_nothing_is_deleted() -> None:
    assert dispensable(best(None), scored(3, 1, 2)) == []


def test_fewer_checkpoints_than_may_stay_all_stay() -> None:
    assert dispensable(best(3), scored(3, 1, 2)) == []


def test_nothing_to_choose_from_is_no_error() -> None:
    assert dispensable(best(1), []) == []


def test_the_best_stay_and_the_worst_go_first() -> None:
    assert dispensable(best(2), scored(0.1, 0.9, 0.3, 0.7, 0.5)) == [0, 2]


def test_the_newest_is_never_deleted_however_bad_it_is() -> None:
    assert dispensable(best(2), scored(0.8, 0.9, 0.7, 0.1)) == [2]


def test_the_newest_is_the_one_with_the_highest_number_not_the_last_listed() -> None:
    candidates = scored(0.8, 0.9, 0.1)

    assert dispensable(best(1), reversed(candidates)) == [0]


def test_among_equals_the_later_one_is_better() -> None:
    assert dispensable(best(2), scored(0.5, 0.5, 0.5, 0.5)) == [0, 1]


def test_without_a_score_the_newest_stay() -> None:
    policy = Retention(keep=2)

    assert dispensable(policy, scored(0.9, 0.8, 0.1, 0.2)) == [0, 1]


def test_lower_is_better_where_that_is_asked_for() -> None:
    policy = Retention(keep=1, score="acc", highest_first=False)

    assert dispensable(policy, scored(0.3, 0.1, 0.2, 0.9)) == [0, 2]


def test_among_equals_the_later_one_is_better_also_where_lower_is() -> None:
    policy = Retention(keep=1, score="acc", highest_first=False)

    assert dispensable(policy, scored(0.1, 0.1, 0.9)) == [0]


def test_the_pinned_are_never_deleted_and_take_no_ones_place() -> None:
    assert dispensable(best(1), scored(0.1, 0.2, 0.9, 0.3, pinned=(0,))) == [1]


@pytest.mark.parametrize("lacking", [..., None, "0.99", "nan", [1.0], {"mean": 1.0}, 1j])
@pytest.mark.parametrize("highest_first", [True, False])
def test_a_score_that_is_missing_or_no_number_ranks_below_every_real_one(
    lacking: Any, highest_first: bool
) -> None:
    policy = Retention(keep=2, score="acc", highest_first=highest_first)

    assert dispensable(policy, scored(-INF, lacking, INF, 0.0))[0] == 1


@pytest.mark.parametrize("highest_first", [True, False])
def test_nan_ranks_below_every_real_score_in_either_direction(highest_first: bool) -> None:
    policy = Retention(keep=3, score="acc", highest_first=highest_first)

    assert dispensable(policy, scored(INF, NAN, -INF, 0.0)) == [1]


def test_scores_that_do_not_count_are_ranked_by_age_among_themselves() -> None:
    order = ranked(best(1), scored(NAN, ..., "x", -INF, NAN))

    assert [candidate.number for candidate in order] == [0, 1, 2, 4, 3]


def test_infinities_are_scores_like_others() -> None:
    order = ranked(best(1), scored(INF, 0.0, -INF))

    assert [candidate.number for candidate in order] == [2, 1, 0]


def test_the_order_does_not_depend_on_the_order_of_the_list() -> None:
    candidates = scored(0.5, NAN, 0.5, ..., 0.1)

    assert ranked(best(1), candidates) == ranked(best(1), reversed(candidates))


@pytest.mark.parametrize("keep", [0, -1])
def test_to_keep_less_than_one_is_refused(keep: int) -> None:
    with pytest.raises(ConfigError) as caught:
        Retention(keep=keep)

    assert f"keep={keep}" in caught.value.message
    assert caught.value.hint == "use None to keep all"


@pytest.mark.parametrize(
    ("metrics", "score"),
    [
        ({"eval/acc": 0.5}, 0.5),
        ({"eval": {"acc": 0.5}}, 0.5),
        ({"eval": {"acc": {"top1": 0.5}}}, None),
        ({"eval": 0.5}, None),
        ({"eval": None}, None),
        ({"acc": 0.5}, None),
        ({}, None),
        ({"eval/acc": 0.5, "eval": {"acc": 0.1}}, 0.5),
        ({"eval/acc": None, "eval": {"acc": 0.1}}, 0.1),
        ({"eval": {"acc": True}}, 1.0),
        ({"eval": {"acc": 3}}, 3.0),
        ({"eval": {"acc": Fraction(1, 4)}}, 0.25),
        ({"eval": {"acc": "0.5"}}, None),
        ({"eval": {"acc": INF}}, INF),
        ({"eval": {"acc": -(10**400)}}, -INF),
        ({"eval": {"acc": 10**400}}, INF),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_score_is_found_flat_or_nested(metrics: dict[str, Any], score: float | None) -> None:
    assert score_of(metrics, "eval/acc") == score


def test_a_score_is_found_below_a_key_that_holds_a_slash_itself() -> None:
    """Ray flattens metrics, so `val/acc` inside `metrics` is known as `metrics/val/acc`."""
    assert score_of({"metrics": {"val/acc": 0.5}}, "metrics/val/acc") == 0.5
    assert score_of({"metrics/val": {"acc": 0.5}}, "metrics/val/acc") == 0.5


def test_a_name_with_empty_parts_finds_only_what_is_named_so() -> None:
    assert score_of({"": {"": 0.5}}, "/") == 0.5
    assert score_of({"a": 0.5}, "a/") is None


def test_checkpoints_that_none_has_a_score_for_are_told_of() -> None:
    policy = Retention(keep=2, score="loss")
    candidates = [Candidate(0, {"los": 1.0}), Candidate(1, {"acc": 0.5, "loss": "small"})]

    warning = unscored(policy, candidates)

    assert warning is not None and "'loss'" in warning and "acc, los, loss" in warning
    assert unscored(policy, []) is None
    assert unscored(Retention(keep=2), candidates) is None
    assert unscored(policy, [*candidates, Candidate(2, {"loss": 0.5})]) is None
    assert unscored(policy, [*candidates, Candidate(2, {}, pinned=True)]) is None, "may get one"
    assert unscored(Retention(score="min-los"), candidates) is None

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.checkpoint.retention import Candidate, Retention, dispensable

# Few values, so that ties, newest-is-worst and not-a-number happen all the time.
scores = st.sampled_from(
    [0, 1, 1.0, True, -1, 0.5, 10**400, math.inf, -math.inf, math.nan, None, "1", [1.0], ...]
)
nested = st.booleans()


def metrics_of(score: Any, is_nested: bool) -> dict[str, Any]:
    if score is ...:
        return {"eval": {}} if is_nested else {"loss": 1.0}
    return {"eval": {"acc": score}} if is_nested else {"eval/acc": score}


metrics = st.builds(metrics_of, scores, nested)
candidates = st.lists(
    st.builds(Candidate, st.integers(0, 30), metrics, st.booleans()),
    max_size=12,
    unique_by=lambda one: one.number,
)
policies = st.builds(
    Retention,
    keep=st.none() | st.integers(1, 6),
    score=st.sampled_from([None, "eval/acc"]),
    highest_first=st.booleans(),
)


def value_of(one: Candidate) -> Any:
    """Return the score as a comparable number, None if it has none; written without `score_of`."""
    found = one.metrics.get("eval/acc")
    if "eval" in one.metrics:
        found = one.metrics["eval"].get("acc")
    if not isinstance(found, int | float) or found != found:
        return None
    return found


def is_better(one: Candidate, other: Candidate, policy: Retention) -> bool:
    """Whether `one` deserves to stay more than `other`: said pair by pair, without a sort key."""
    if policy.score is not None:
        mine, theirs = value_of(one), value_of(other)
        if (mine is None) != (theirs is None):
            return theirs is None
        if mine is not None and mine != theirs:
            if {mine, theirs} == {10**400, math.inf}:
                return one.number > other.number  # both are more than any float
            return bool((mine > theirs) == policy.highest_first)
    return one.number > other.number


@given(policies, candidates)
def test_what_goes_is_exactly_what_k_others_beat_unless_newest_or_pinned(
    policy: Retention, found: list[Candidate]
) -> None:
    gone = dispensable(policy, found)

    for one in found:
        beaten_by = sum(is_better(other, one, policy) for other in found)
        is_newest = all(one.number >= other.number for other in found)
        stays = policy.keep is None or beaten_by < policy.keep or is_newest or one.pinned
        assert (one.number not in gone) == stays, one


@given(policies, candidates)
def test_the_worst_go_first_and_nothing_goes_twice(
    policy: Retention, found: list[Candidate]
) -> None:
    gone = dispensable(policy, found)

    assert len(gone) == len(set(gone))
    by_number = {one.number: one for one in found}
    for earlier, later in pairwise(gone):
        assert is_better(by_number[later], by_number[earlier], policy)


@given(policies, candidates, st.randoms(use_true_random=False))
def test_the_order_of_the_list_does_not_matter(
    policy: Retention, found: list[Candidate], random: Any
) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)

    assert dispensable(policy, shuffled) == dispensable(policy, found)


@given(policies, candidates)
def test_to_retain_twice_deletes_nothing_more(policy: Retention, found: list[Candidate]) -> None:
    gone = set(dispensable(policy, found))

    left = [one for one in found if one.number not in gone]

    assert dispensable(policy, left) == []

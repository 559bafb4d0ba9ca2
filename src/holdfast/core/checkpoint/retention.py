"""Decides which checkpoints to keep: arithmetic on scores.

The best k by score are kept; of equals the later one is better. The newest and the pinned are
always kept, so there may be a few more than k. A score that is missing, not a number or NaN ranks
below every real one, minus infinity included.

A score called "min-loss" or "max-auc" is the metric of that name if there is one, and else the
lowest `loss`, or the highest `auc`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import ConfigError

PREFIXES = ("min-", "max-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How many checkpoints to keep, and how to rank them.

    Attributes:
        keep: How many; None keeps all.
        score: The metric to rank by, `a/b` for a nested one; None ranks by age.
        highest_first: Whether a higher score is better.
    """

    keep: int | None = None
    score: str | None = None
    highest_first: bool = True

    def __post_init__(self) -> None:
        if self.keep is not None and self.keep < 1:
            raise ConfigError(
                f"keep={self.keep}: the newest checkpoint always stays, so at least 1 is kept",
                hint="use None to keep all",
            )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A committed checkpoint as retention sees it."""

    number: int
    metrics: Mapping[str, Any]
    pinned: bool = False


def ranked(policy: Retention, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates from worst to best."""
    candidates = list(candidates)
    policy = _resolved(policy, candidates)
    return sorted(candidates, key=lambda each: (*_worth(policy, each.metrics), each.number))


def _resolved(policy: Retention, candidates: Iterable[Candidate]) -> Retention:
    """Return the policy with the prefix of its score resolved, given what was reported."""
    score = policy.score
    if score is None or not score.startswith(PREFIXES):
        return policy
    if any(_find(candidate.metrics, score) is not None for candidate in candidates):
        return policy
    return replace(policy, score=score[4:], highest_first=score.startswith("max-"))


def unscored(policy: Retention, candidates: Iterable[Candidate]) -> str | None:
    """Return a warning if no checkpoint has the metric they are ranked by, else None.

    A pinned one may still get it, from its validation.
    """
    candidates = list(candidates)
    score = _resolved(policy, candidates).score
    if score is None or not candidates or any(candidate.pinned for candidate in candidates):
        return None
    if any(score_of(candidate.metrics, score) is not None for candidate in candidates):
        return None
    names = sorted({name for candidate in candidates for name in candidate.metrics})
    return (
        f"checkpoints are ranked by {score!r}, and none has a number for it; reported are:"
        f" {', '.join(names) or 'no metrics at all'}"
    )


def dispensable(policy: Retention, candidates: Iterable[Candidate]) -> list[int]:
    """Return the numbers of the checkpoints to delete, worst first."""
    order = ranked(policy, candidates)
    if policy.keep is None or len(order) <= policy.keep:
        return []
    newest = max(candidate.number for candidate in order)
    return [
        candidate.number
        for candidate in order[: len(order) - policy.keep]
        if candidate.number != newest and not candidate.pinned
    ]


def score_of(metrics: Mapping[str, Any], name: str) -> float | None:
    """Return the metric `name` as a number, looking inside nested metrics; None if it has none."""
    value = _find(metrics, name)
    if not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats
        return -math.inf if value < 0 else math.inf


def _find(metrics: Mapping[str, Any], name: str) -> Any:
    """Return the metric `name`, where `a/b` may be `b` inside `a`; None if there is none."""
    value = metrics.get(name)
    cut = name.find("/")
    while value is None and cut >= 0:
        nested = metrics.get(name[:cut])
        if isinstance(nested, Mapping):
            value = _find(nested, name[cut + 1 :])
        cut = name.find("/", cut + 1)
    return value


def _worth(policy: Retention, metrics: Mapping[str, Any]) -> tuple[int, float]:
    if policy.score is None:
        return (0, 0.0)
    score = score_of(metrics, policy.score)
    if score is None or math.isnan(score):
        return (0, 0.0)
    return (1, score if policy.highest_first else -score)

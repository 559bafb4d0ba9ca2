"""Which checkpoints to keep: arithmetic on scores, nothing else.

The best k by score are kept; among equals the later one is better. The newest and the pinned are
never given up, so a few more than k may stay. A score that is missing, not a number or NaN ranks
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
    """How many checkpoints to keep, and by what.

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
    found = list(candidates)
    policy = _resolved(policy, found)
    return sorted(found, key=lambda one: (*_worth(policy, one.metrics), one.number))


def _resolved(policy: Retention, candidates: Iterable[Candidate]) -> Retention:
    """Return what a score with a prefix means, now that it is known what was reported."""
    score = policy.score
    if score is None or not score.startswith(PREFIXES):
        return policy
    if any(_find(one.metrics, score) is not None for one in candidates):
        return policy
    return replace(policy, score=score[4:], highest_first=score.startswith("max-"))


def unscored(policy: Retention, candidates: Iterable[Candidate]) -> str | None:
    """Return what to say if no checkpoint has what they are ranked by; None if that is well.

    One that is pinned may get it yet, by validation.
    """
    found = list(candidates)
    score = _resolved(policy, found).score
    if score is None or not found or any(one.pinned for one in found):
        return None
    if any(score_of(one.metrics, score) is not None for one in found):
        return None
    names = sorted({name for one in found for name in one.metrics}) or ["no metrics at all"]
    return (
        f"checkpoints are ranked by {score!r}, and none has a number for it; reported are:"
        f" {', '.join(names)}"
    )


def dispensable(policy: Retention, candidates: Iterable[Candidate]) -> list[int]:
    """Return the numbers of the checkpoints to delete, worst first."""
    order = ranked(policy, candidates)
    if policy.keep is None or len(order) <= policy.keep:
        return []
    newest = max(one.number for one in order)
    return [
        one.number
        for one in order[: len(order) - policy.keep]
        if one.number != newest and not one.pinned
    ]


def score_of(metrics: Mapping[str, Any], name: str) -> float | None:
    """Return the metric `name` as a number, looking inside nested metrics; None if it has none."""
    found = _find(metrics, name)
    if not isinstance(found, numbers.Real):
        return None
    try:
        return float(found)
    except OverflowError:  # an integer beyond all floats
        return -math.inf if found < 0 else math.inf


def _find(metrics: Mapping[str, Any], name: str) -> Any:
    """Return what is called `name` once nested keys are joined with slashes; None if nothing is."""
    found = metrics.get(name)
    cut = name.find("/")
    while found is None and cut >= 0:
        below = metrics.get(name[:cut])
        if isinstance(below, Mapping):
            found = _find(below, name[cut + 1 :])
        cut = name.find("/", cut + 1)
    return found


def _worth(policy: Retention, metrics: Mapping[str, Any]) -> tuple[int, float]:
    if policy.score is None:
        return (0, 0.0)
    score = score_of(metrics, policy.score)
    if score is None or math.isnan(score):
        return (0, 0.0)
    return (1, score if policy.highest_first else -score)

"""Which trial, and which checkpoint, is best: arithmetic on what was reported."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.checkpoint import Checkpoint
from holdfast.core.checkpoint.retention import score_of
from holdfast.core.metric_history import flattened
from holdfast.errors import ConfigError
from holdfast.tune.result import AUTO_RESULT_KEYS, DEFAULT_METRIC
from holdfast.tune.results.summary import TrialSummary

T = TypeVar("T", bound=TrialSummary)

SCOPES = ("last", "all", "avg", "last-5-avg", "last-10-avg")
_NAMES_MAX = 40
_MEANT = {
    "maximum": "max",
    "maximize": "max",
    "maximise": "max",
    "highest": "max",
    "minimum": "min",
    "minimize": "min",
    "minimise": "min",
    "lowest": "min",
}


def checked_mode(mode: object) -> str:
    """Return a mode if it is one."""
    if mode in ("min", "max"):
        return str(mode)
    meant = _MEANT.get(str(mode).strip().lower(), str(mode).strip().lower())
    hint = f"mode={meant!r}" if meant in ("min", "max") else "mode='min' for a loss"
    raise ConfigError(f"mode={mode!r}: must be 'min' or 'max'", hint=hint)


def checked_scope(scope: object) -> str:
    """Return a scope if it is one."""
    if scope in SCOPES:
        return str(scope)
    raise ConfigError(f"scope={scope!r}: must be one of {', '.join(map(repr, SCOPES))}")


def metric_of(metric: str | None, mode: object) -> str | None:
    """Return what trials are compared by: with a mode alone, the number that a trainable returns.

    None if neither is known.
    """
    return DEFAULT_METRIC if metric is None and isinstance(mode, str) else metric


def wanted(
    metric: str | None, mode: str | None, call: str, trials: Iterable[TrialSummary] = ()
) -> tuple[str, str]:
    """Return metric and mode once both are known.

    With a mode alone it is the number that a trainable returned, if any of `trials` did.
    """
    if metric is None and mode is not None and any(map(_returned_number, trials)):
        metric = DEFAULT_METRIC
    if metric is None or mode is None:
        missing = " and ".join(
            name for name, value in (("metric", metric), ("mode", mode)) if value is None
        )
        raise ConfigError(
            f"{call}: {missing} is not known, neither from the call nor from the study",
            hint=f"{call}(metric='loss', mode='min'), or TuneConfig(metric=…, mode=…)",
        )
    return metric, checked_mode(mode)


def _returned_number(trial: TrialSummary) -> bool:
    return DEFAULT_METRIC in trial.last_result or DEFAULT_METRIC in trial.statistics


def value_of(trial: TrialSummary, metric: str, mode: str, scope: str) -> float | None:
    """Return what a trial is compared by; None if it never reported the metric as a number."""
    found = trial.statistics.get(metric)
    if found is None:
        return score_of(trial.last_result, metric) if scope == "last" else None
    return found.summary()[mode if scope == "all" else scope]


def best_trial(
    trials: Iterable[T],
    metric: str,
    mode: str,
    scope: str = "last",
    *,
    filter_nan_and_inf: bool = True,
) -> T | None:
    """Return the best trial, of equals the first; None if none can be compared."""
    mode, scope = checked_mode(mode), checked_scope(scope)
    best: T | None = None
    best_worth = (-1, 0.0)
    for trial in trials:
        value = value_of(trial, metric, mode, scope)
        if value is None or (filter_nan_and_inf and not math.isfinite(value)):
            continue
        # NaN, where it counts at all, is worse than everything else.
        worth = (0, 0.0) if math.isnan(value) else (1, value if mode == "max" else -value)
        if best is None or worth > best_worth:
            best, best_worth = trial, worth
    return best


def no_best(trials: Sequence[TrialSummary], metric: str, scope: str) -> str:
    """Return why there is no best trial: what was asked for, and what was reported instead."""
    if not trials:
        return "there is no best trial: the study has none"
    if any(metric in trial.statistics for trial in trials):
        return (
            f"there is no best trial: no {scope!r} value of {metric!r} is a finite number"
            " (filter_nan_and_inf=False lets others in)"
        )
    return f"there is no best trial: none has reported {metric!r}; reported were: " + reported(
        [name for trial in trials for name in _reported_by(trial)]
    )


def reported(names: Iterable[str]) -> str:
    """Return names of metrics for a message, each once, what every result has behind the others."""
    found = sorted(set(names), key=lambda name: (name in AUTO_RESULT_KEYS, name))
    if len(found) > _NAMES_MAX:
        found = [*found[:_NAMES_MAX], f"and {len(found) - _NAMES_MAX} more"]
    return ", ".join(found) or "nothing at all"


def _reported_by(trial: TrialSummary) -> Iterable[str]:
    if trial.statistics:
        return trial.statistics
    return flattened({name: v for name, v in trial.last_result.items() if name != "config"})


def best_checkpoint(
    kept: Sequence[tuple[Checkpoint, Mapping[str, Any]]], metric: str, mode: str
) -> Checkpoint:
    """Return the checkpoint with the highest or lowest `metric`, of equals the last.

    Raises `RuntimeError` if none has a number for it.
    """
    sign = 1.0 if checked_mode(mode) == "max" else -1.0
    if not kept:
        raise RuntimeError(f"there is no checkpoint to choose by {metric!r}")
    scored = [
        (sign * score, place)
        for place, (_, metrics) in enumerate(kept)
        if (score := score_of(metrics, metric)) is not None and not math.isnan(score)
    ]
    if not scored:
        names = [
            name
            for _, metrics in kept
            for name in flattened({k: v for k, v in metrics.items() if k != "config"})
        ]
        raise RuntimeError(
            f"no checkpoint has a number for {metric!r}; reported were: {reported(names)}"
        )
    return kept[max(scored)[1]][0]

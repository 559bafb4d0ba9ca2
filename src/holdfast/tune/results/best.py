"""Finds the best trial and the best checkpoint by a reported metric."""

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
_MODE_SYNONYMS = {
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
    """Return a valid mode; raise `ConfigError` for any other."""
    if mode in ("min", "max"):
        return str(mode)
    word = str(mode).strip().lower()
    meant = _MODE_SYNONYMS.get(word, word)
    hint = f"mode={meant!r}" if meant in ("min", "max") else "mode='min' for a loss"
    raise ConfigError(f"mode={mode!r}: must be 'min' or 'max'", hint=hint)


def checked_scope(scope: object) -> str:
    """Return a valid scope; raise `ConfigError` for any other."""
    if scope in SCOPES:
        return str(scope)
    raise ConfigError(f"scope={scope!r}: must be one of {', '.join(map(repr, SCOPES))}")


def metric_of(metric: str | None, mode: object) -> str | None:
    """Return what trials are compared by: given a mode alone, the number that a trainable returns.

    None if neither is given.
    """
    return DEFAULT_METRIC if metric is None and isinstance(mode, str) else metric


def wanted(
    metric: str | None, mode: str | None, call: str, trials: Iterable[TrialSummary] = ()
) -> tuple[str, str]:
    """Return metric and mode; raise `ConfigError` if one is missing.

    Given a mode alone, the metric is the number that a trainable returned, if any of `trials` did.
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
    """Return the value a trial is compared by; None if it never reported the metric as a number."""
    statistics = trial.statistics.get(metric)
    if statistics is None:
        return score_of(trial.last_result, metric) if scope == "last" else None
    return statistics.summary()[mode if scope == "all" else scope]


def best_trial(
    trials: Iterable[T],
    metric: str,
    mode: str,
    scope: str = "last",
    *,
    filter_nan_and_inf: bool = True,
) -> T | None:
    """Return the best trial, the first among equals; None if none can be compared."""
    mode, scope = checked_mode(mode), checked_scope(scope)
    best: T | None = None
    best_rank = (-1, 0.0)
    for trial in trials:
        value = value_of(trial, metric, mode, scope)
        if value is None or (filter_nan_and_inf and not math.isfinite(value)):
            continue
        # NaN, unless it is filtered, ranks below everything else.
        rank = (0, 0.0) if math.isnan(value) else (1, value if mode == "max" else -value)
        if best is None or rank > best_rank:
            best, best_rank = trial, rank
    return best


def no_best(trials: Sequence[TrialSummary], metric: str, scope: str) -> str:
    """Return a message that says why there is no best trial, and what was reported instead."""
    if not trials:
        return "there is no best trial: the study has none"
    if any(metric in trial.statistics for trial in trials):
        return (
            f"there is no best trial: no {scope!r} value of {metric!r} is a finite number"
            " (filter_nan_and_inf=False includes the others)"
        )
    return f"there is no best trial: none has reported {metric!r}; reported were: " + reported(
        [name for trial in trials for name in _reported_by(trial)]
    )


def reported(names: Iterable[str]) -> str:
    """Return names of metrics for a message, each once; those that every result has come last."""
    ordered = sorted(set(names), key=lambda name: (name in AUTO_RESULT_KEYS, name))
    if len(ordered) > _NAMES_MAX:
        ordered = [*ordered[:_NAMES_MAX], f"and {len(ordered) - _NAMES_MAX} more"]
    return ", ".join(ordered) or "nothing at all"


def _reported_by(trial: TrialSummary) -> Iterable[str]:
    if trial.statistics:
        return trial.statistics
    return flattened({name: v for name, v in trial.last_result.items() if name != "config"})


def best_checkpoint(
    checkpoints: Sequence[tuple[Checkpoint, Mapping[str, Any]]], metric: str, mode: str
) -> Checkpoint:
    """Return the checkpoint with the highest or lowest `metric`, the last among equals.

    Raises `RuntimeError` if none has a number for it.
    """
    sign = 1.0 if checked_mode(mode) == "max" else -1.0
    if not checkpoints:
        raise RuntimeError(f"there is no checkpoint to choose by {metric!r}")
    scored = [
        (sign * score, index)
        for index, (_, metrics) in enumerate(checkpoints)
        if (score := score_of(metrics, metric)) is not None and not math.isnan(score)
    ]
    if not scored:
        names = [
            name
            for _, metrics in checkpoints
            for name in flattened({k: v for k, v in metrics.items() if k != "config"})
        ]
        raise RuntimeError(
            f"no checkpoint has a number for {metric!r}; reported were: {reported(names)}"
        )
    return checkpoints[max(scored)[1]][0]

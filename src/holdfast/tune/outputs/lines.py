"""Lines of output, one for each event, limited to as many as people can read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.core.metric_history import flattened, is_number
from holdfast.core.quantities import duration
from holdfast.core.study.trial import Donor, Status, Trial, values_now
from holdfast.tune.outputs.tables import cell, error_line, inferred_metrics
from holdfast.tune.result import TIME_TOTAL_S, TRAINING_ITERATION

RESULT_EVERY_S = 5.0
WINDOW_S = 1.0
LINES_MAX = 20  # in a window
METRICS_MAX = 6


class LineBudget:
    """Limits the lines in a window of time; the rest is counted in one line."""

    def __init__(self, lines_max: int = LINES_MAX, window_s: float = WINDOW_S) -> None:
        self._lines_max, self._window_s = lines_max, window_s
        self._began = float("-inf")
        self._shown = 0
        self._left_out: Counter[str] = Counter()

    def take(self, kind: str, line: str, now: float) -> list[str]:
        """Return the lines to print now; a line that is left out is counted under `kind`."""
        lines = self.rest(now) if now - self._began >= self._window_s else []
        if now - self._began >= self._window_s:
            self._began, self._shown = now, 0
        if self._shown >= self._lines_max:
            self._left_out[kind] += 1
            return lines
        self._shown += 1
        return [*lines, line]

    def leaves_out(self, kind: str, now: float) -> bool:
        """Whether a line would not be printed now; if so, counts it."""
        if now - self._began >= self._window_s or self._shown < self._lines_max:
            return False
        self._left_out[kind] += 1
        return True

    def rest(self, now: float, *, is_end: bool = False) -> list[str]:
        """Return a line that counts those left out, once their window is over."""
        if not self._left_out or not (is_end or now - self._began >= self._window_s):
            return []
        counts = ", ".join(f"{count} {kind}" for kind, count in self._left_out.items())
        self._left_out.clear()
        return [f"… and {counts} more"]


class ResultLines:
    """Chooses which results get a line: each trial's first and last, others now and then."""

    def __init__(self, every_s: float = RESULT_EVERY_S) -> None:
        self._every_s = every_s
        self._shown_at: dict[str, float] = {}

    def is_due(self, trial: Trial, now: float) -> bool:
        """Return whether it is time for a line on this trial."""
        if now - self._shown_at.get(trial.trial_id, float("-inf")) < self._every_s:
            return False
        self._shown_at[trial.trial_id] = now
        return True

    def forget(self, trial: Trial) -> None:
        self._shown_at.pop(trial.trial_id, None)


@dataclass(frozen=True, slots=True)
class LastStart:
    """A trial as it was when it last started, to describe what has changed since.

    Attributes:
        config: Its config; None if that is not known.
        failures: How often it had failed by then.
        donor: The trial whose checkpoint it was given then.
    """

    config: Mapping[str, Any] | None
    failures: int
    donor: Donor | None

    @classmethod
    def of(cls, trial: Trial) -> LastStart:
        return cls(trial.config, trial.failures(), trial.donor)


def started(trial: Trial, before: LastStart | None = None, donor: str | None = None) -> str:
    """Return a line on an attempt that has started.

    `before` is None if the last start is not known; `donor` names the trial whose weights it has.
    """
    parameters = _parameters(trial.evaluated_params)
    with_parameters = f" with {parameters}" if parameters else ""
    if trial.run.attempts <= 1 and donor is None:
        return f"{trial} started{with_parameters}"
    if before is None or trial.failures() > before.failures:
        return f"{trial} started again (attempt {trial.run.attempts}){with_parameters}"
    if trial.donor is None or trial.donor == before.donor:
        return f"{trial} goes on after step {trial.step}{with_parameters}"
    changes = with_parameters
    if before.config is not None:
        changes = f": {_changed(before.config, trial) or 'nothing changed'}"
    event = "changed" if donor == str(trial) else f"took over the weights of {donor}"
    return f"{trial} {event}{changes}"


def _parameters(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={cell(value)}" for name, value in parameters.items())


def _changed(before: Mapping[str, Any], trial: Trial) -> str:
    old = values_now(trial.evaluated_params, before, before)
    return ", ".join(
        f"{name} {cell(old[name])} → {cell(value)}"
        for name, value in trial.evaluated_params.items()
        if old[name] != value
    )


def reported(trial: Trial, result: Mapping[str, Any], *, all_metrics: bool = False) -> str:
    """Return a line on a result."""
    return f"{trial} {_metrics(trial, result, all_metrics=all_metrics)}"


def saved(trial: Trial, folder: str) -> str:
    """Return a line on a checkpoint."""
    return f"{trial} saved {folder}"


def finished(trial: Trial) -> str:
    """Return a line on a trial that has finished."""
    metrics = _metrics(trial, trial.last_result, all_metrics=False)
    return f"{trial} finished" + (f": {metrics}" if metrics else "")


def failed(trial: Trial, *, is_last: bool) -> str:
    """Return a line on an attempt that was lost."""
    reason = f": {error_line(trial.error)}" if trial.error else ""
    event = "failed for good" if is_last else "was lost and will be tried again"
    return f"{trial} {event}{reason}"


def interrupted(counts: Mapping[str, int], total: int | None) -> str:
    """Return a line on a study that was interrupted while its script goes on."""
    done = counts.get(Status.TERMINATED, 0)
    planned = f"of {total} trials are" if total is not None else "trials are"
    return (
        f"Interrupted: {done} {planned} done. fit() returns the results so far, with"
        " .interrupted True, and the script goes on"
    )


def _metrics(trial: Trial, result: Mapping[str, Any], *, all_metrics: bool) -> str:
    flat = flattened({name: value for name, value in result.items() if name != "config"})
    if all_metrics:
        return ", ".join(f"{name}={cell(value)}" for name, value in flat.items())
    own = inferred_metrics([_with(trial, dict(result))], METRICS_MAX)
    parts = [f"iteration {cell(flat[TRAINING_ITERATION])}"] if TRAINING_ITERATION in flat else []
    parts += [f"{name}={cell(flat[name])}" for name in own]
    total_s: Any = flat.get(TIME_TOTAL_S)
    if is_number(total_s):
        parts.append(f"{duration(total_s)} in total")
    return ", ".join(parts)


def _with(trial: Trial, result: dict[str, Any]) -> Trial:
    return trial if trial.last_result is result else Trial(trial.trial_id, last_result=result)

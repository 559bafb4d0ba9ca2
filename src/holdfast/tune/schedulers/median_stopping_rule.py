"""The median stopping rule: ends trials that were never better than the average of others.

Golovin et al., "Google Vizier: A Service for Black-Box Optimization".
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any

from holdfast.core.study.trial import Status
from holdfast.tune.schedulers.arguments import checking_arguments
from holdfast.tune.schedulers.scored_scheduler import ScoredScheduler, order_of
from holdfast.tune.schedulers.trial_scheduler import WAITING, first_that_fits
from holdfast.tune.trial import StudyView, Trial


class MedianStoppingRule(ScoredScheduler):
    """Ends a trial whose best score is worse than the median of the other trials' averages so far.

    While too few others have come as far, trials give way to waiting ones, so that these can catch
    up. All scores of all trials are kept for as long as the study runs.

    Args:
        time_attr: The result entry that measures progress.
        metric: The metric to judge by.
        mode: Whether `metric` should be small ("min") or large ("max").
        grace_period: No trial is judged before this progress.
        min_samples_required: How many others must have come as far.
        min_time_slice: How far a trial runs before it gives way; infinity for never giving way.
        hard_stop: Whether bad trials end; if not, they pause until no other trial waits, and then
            run to their end.
    """

    trials_ahead = 1

    _grace_period: float
    _min_samples: int
    _min_time_slice: float
    _hard_stop: bool
    _histories: dict[str, History]
    _paused_at: dict[str, float]
    _set_back: set[str]

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float = 60.0,
        min_samples_required: int = 3,
        min_time_slice: float = 0,
        hard_stop: bool = True,  # noqa: FBT001, FBT002  # as in Ray
    ) -> None:
        with checking_arguments(self, locals()) as arguments:
            arguments.metric()
            arguments.number("grace_period", "no trial is judged before it", at_least=0)
            arguments.whole("min_samples_required", "it counts other trials", at_least=1)
            arguments.number("min_time_slice", "a trial runs at least that far", at_least=0)
            arguments.flag("hard_stop")
        super().__init__(time_attr, metric, mode)
        self._grace_period = grace_period
        self._min_samples = min_samples_required
        self._min_time_slice = min_time_slice
        self._hard_stop = bool(hard_stop)
        self._histories = {}
        self._paused_at = {}
        self._set_back = set()
        self.requires_checkpoints = not hard_stop or min_time_slice < math.inf

    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        time, score = self._time(result), self._score(result)
        if time is None or score is None or trial.trial_id in self._set_back:
            return self.CONTINUE
        history = self._histories.setdefault(trial.trial_id, History(self._grace_period))
        history.add(time, score)
        if time < self._grace_period:
            return self.CONTINUE
        means = self._means_of_others(trial, time)
        if len(means) < self._min_samples:
            return self._give_way(view, trial, time)
        if history.best() >= statistics.median(means):
            return self.CONTINUE
        if self._hard_stop:
            self._forget(trial)
            return self.STOP
        self._set_back.add(trial.trial_id)
        return self.PAUSE

    def on_trial_complete(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> None:
        time, score = self._time(result), self._score(result)
        if time is not None and score is not None:
            history = self._histories.setdefault(trial.trial_id, History(self._grace_period))
            history.add(time, score)
        self._forget(trial)

    def on_trial_remove(self, view: StudyView, trial: Trial) -> None:
        self._forget(trial)

    def on_trial_error(self, view: StudyView, trial: Trial) -> None:
        if trial.is_finished():
            self._forget(trial)

    def choose_trial_to_run(self, view: StudyView) -> Trial | None:
        """Return a pending trial, else the paused one with the least progress, bad trials last."""
        trials = view.get_trials()
        pending = [trial for trial in trials if trial.status == Status.PENDING]
        paused = [trial for trial in trials if trial.status == Status.PAUSED]
        paused.sort(
            key=lambda trial: (
                trial.trial_id in self._set_back,
                self._paused_at.get(trial.trial_id, 0.0),
                trial.number,
            )
        )
        return first_that_fits(view, [*pending, *paused])

    def debug_string(self) -> str:
        return f"MedianStoppingRule: {len(self._histories)} trials seen"

    def get_state(self) -> dict[str, Any]:
        return {
            **super().get_state(),
            "histories": {name: history.rows() for name, history in self._histories.items()},
            "paused_at": dict(self._paused_at),
            "set_back": sorted(self._set_back),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self._histories = {}
        for name, rows in state["histories"].items():
            self._histories[name] = History(self._grace_period)
            for time, score in rows:
                self._histories[name].add(time, score)
        self._paused_at = dict(state["paused_at"])
        self._set_back = set(state["set_back"])

    def _means_of_others(self, trial: Trial, time: float) -> list[float]:
        others = (history for name, history in self._histories.items() if name != trial.trial_id)
        means = (history.mean(time) for history in others if history.reached() >= time)
        return [mean for mean in means if mean is not None]

    def _give_way(self, view: StudyView, trial: Trial, time: float) -> str:
        ran = time - self._paused_at.get(trial.trial_id, 0.0)
        if ran <= self._min_time_slice or not self._others_wait(view, trial):
            return self.CONTINUE
        self._paused_at[trial.trial_id] = time
        return self.PAUSE

    def _others_wait(self, view: StudyView, trial: Trial) -> bool:
        return any(
            other is not trial and other.status in WAITING and other.trial_id not in self._set_back
            for other in view.get_trials()
        )

    def _forget(self, trial: Trial) -> None:
        """Drop what is useless once a trial is over; its scores stay."""
        self._paused_at.pop(trial.trial_id, None)
        self._set_back.discard(trial.trial_id)


class History:
    """The scores of one trial over time, with running bests and averages."""

    def __init__(self, grace_period: float) -> None:
        self._grace_period = grace_period
        self._times: list[float] = []
        self._scores: list[float] = []
        self._bests: list[float] = []
        self._sums: list[float] = []
        self._counts: list[int] = []

    def add(self, time: float, score: float) -> None:
        """Add a score; it replaces those from this time on, which a lost attempt reported."""
        place = bisect_left(self._times, time)
        for column in (self._times, self._scores, self._bests, self._sums, self._counts):
            del column[place:]
        counts = time >= self._grace_period and not math.isnan(score)
        self._times.append(time)
        self._scores.append(score)
        self._bests.append(max(self.best(), order_of(score)))
        self._sums.append((self._sums or [0.0])[-1] + (score if counts else 0.0))
        self._counts.append((self._counts or [0])[-1] + counts)

    def best(self) -> float:
        return self._bests[-1] if self._bests else -math.inf

    def reached(self) -> float:
        return self._times[-1]

    def mean(self, until: float) -> float | None:
        """Return the average score after the grace period, None if there are no scores."""
        place = bisect_right(self._times, until) - 1
        if place < 0 or not self._counts[place]:
            return None
        mean = self._sums[place] / self._counts[place]
        return None if math.isnan(mean) else mean

    def rows(self) -> list[list[float]]:
        """Return times and scores in order."""
        return [list(row) for row in zip(self._times, self._scores, strict=True)]

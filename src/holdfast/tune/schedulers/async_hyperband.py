"""Asynchronous successive halving (ASHA): ends trials that are not among the best at a rung.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", in its stopping variant: trials
do not wait for each other. A trial that reaches a rung is compared with those that reached it
earlier, and ends if it is worse than the best 1/`reduction_factor` of them.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping
from typing import Any

from holdfast.tune.schedulers.arguments import MILESTONES_MAX, checking_arguments
from holdfast.tune.schedulers.scored_scheduler import ScoredScheduler
from holdfast.tune.search.seeding import generator_for, seed_of
from holdfast.tune.trial import StudyView, Trial


class AsyncHyperBandScheduler(ScoredScheduler):
    """Ends trials at rungs `grace_period * reduction_factor**k` unless they are among the best.

    Args:
        time_attr: The result entry that measures progress.
        metric: The metric to judge by.
        mode: Whether `metric` should be small ("min") or large ("max").
        max_t: The progress at which every trial ends.
        grace_period: No trial ends before this progress.
        reduction_factor: One in this many trials passes a rung.
        brackets: How many sets of rungs there are; later ones start at later rungs. Trials are
            assigned to them at random.
        stop_last_trials: Whether trials end at `max_t`.
        seed: Seeds the assignment to brackets; None for a random one.
    """

    _max_t: float
    _stop_last_trials: bool
    _seed: int
    _brackets: list[list[Rung]]
    _chances: list[float]
    _stopped: int

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,  # noqa: FBT001, FBT002  # as in Ray
        *,
        seed: int | None = None,
    ) -> None:
        with checking_arguments(self, locals()) as arguments:
            arguments.metric()
            can_compare = arguments.number("max_t", "every trial ends there", above=0)
            can_compare &= arguments.number("grace_period", "no trial ends before it", above=0)
            if can_compare and max_t < grace_period:
                arguments.add("max_t", f"below grace_period={grace_period!r}")
            meaning = "one in this many trials passes a rung"
            if arguments.number("reduction_factor", meaning, above=1) and can_compare:
                arguments.milestones("reduction_factor", grace_period, max_t, reduction_factor)
            meaning = "trials are assigned to them at random"
            if arguments.whole("brackets", meaning, at_least=1):
                arguments.number("brackets", meaning, at_most=MILESTONES_MAX)
            arguments.flag("stop_last_trials")
            arguments.seed()
        super().__init__(time_attr, metric, mode)
        self._max_t = max_t
        self._stop_last_trials = bool(stop_last_trials)
        self._seed = seed_of(seed)
        rungs = milestones_for(max_t, grace_period, reduction_factor)
        self._brackets = [
            [Rung(milestone, reduction_factor) for milestone in rungs[skipped:]]
            for skipped in range(brackets)
        ]
        sizes = [len(bracket) for bracket in self._brackets]
        self._chances = [math.exp(size - max(sizes)) for size in sizes]
        self._stopped = 0

    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        time = self._time(result)
        if time is None:
            return self.CONTINUE
        if time >= self._max_t and self._stop_last_trials:
            decision = self.STOP
        else:
            decision = self.CONTINUE if self._passes(trial, time, result) else self.STOP
        self._stopped += decision == self.STOP
        return decision

    def on_trial_complete(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> None:
        time = self._time(result)
        if time is not None:
            self._passes(trial, time, result)  # later trials are compared with it

    def debug_string(self) -> str:
        lines = [f"AsyncHyperBand: {self._stopped} trials stopped"]
        for number, bracket in enumerate(self._brackets):
            rungs = (
                f"{rung.milestone:g}: {len(rung.scores)} trials, cutoff {rung.cutoff()}"
                for rung in reversed(bracket)
            )
            lines.append(f"Bracket {number}: " + " | ".join(rungs))
        return "\n".join(lines)

    def get_state(self) -> dict[str, Any]:
        return {
            **super().get_state(),
            "seed": self._seed,
            "stopped": self._stopped,
            "rungs": [[dict(rung.scores) for rung in bracket] for bracket in self._brackets],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self._seed = state["seed"]
        self._stopped = state["stopped"]
        for bracket, rungs in zip(self._brackets, state["rungs"], strict=True):
            for rung, scores in zip(bracket, rungs, strict=True):
                rung.replace(scores)

    def _passes(self, trial: Trial, time: float, result: Mapping[str, Any]) -> bool:
        """Enter a trial at the highest rung it has reached; return whether it passes that rung.

        It is not entered at lower rungs that it skipped: a late score is no match for early ones.
        """
        score = self._score(result)
        reached = [rung for rung in self._bracket_of(trial) if time >= rung.milestone]
        if score is None or not reached or trial.trial_id in reached[-1].scores:
            return True
        cutoff = reached[-1].cutoff()
        reached[-1].enter(trial.trial_id, score)
        return cutoff is None or score >= cutoff

    def _bracket_of(self, trial: Trial) -> list[Rung]:
        generator = generator_for(self._seed, "bracket", trial.number)
        return generator.choices(self._brackets, self._chances)[0]


class Rung:
    """The scores of all trials that reached one milestone."""

    def __init__(self, milestone: float, reduction_factor: float) -> None:
        self.milestone = milestone
        self.scores: dict[str, float] = {}
        self._quantile = 1 - 1 / reduction_factor
        self._ordered: list[float] = []

    def enter(self, trial_id: str, score: float) -> None:
        """Add a score; NaN does not count for the cutoff."""
        self.scores[trial_id] = score
        if not math.isnan(score):
            insort(self._ordered, score)

    def cutoff(self) -> float | None:
        """Return the score to reach, interpolated at the quantile; None if there are no scores."""
        if not self._ordered:
            return None
        place = self._quantile * (len(self._ordered) - 1)
        below, above = self._ordered[math.floor(place)], self._ordered[math.ceil(place)]
        if below == above or math.isinf(below) or math.isinf(above):
            return below
        return below + (above - below) * (place - math.floor(place))

    def replace(self, scores: Mapping[str, float]) -> None:
        """Replace all scores."""
        self.scores, self._ordered = {}, []
        for trial_id, score in scores.items():
            self.enter(trial_id, score)


def milestones_for(max_t: float, grace_period: float, reduction_factor: float) -> list[float]:
    """Return all rungs up to `max_t`; by multiplication, because logarithms may lose the last."""
    milestones = [grace_period]
    while milestones[-1] * reduction_factor <= max_t:
        milestones.append(milestones[-1] * reduction_factor)
    return milestones


ASHAScheduler = AsyncHyperBandScheduler

"""Asynchronous successive halving (ASHA): who is not among the best at a rung goes no further.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", in its stopping variant: nobody
waits for others. A trial that reaches a rung is compared with those that were there before it, and
ends if it is worse than the best 1/`reduction_factor` of them.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping
from typing import Any

from holdfast.core.study.trial import Trial
from holdfast.core.study.view import StudyView
from holdfast.tune.schedulers.arguments import MILESTONES_MAX, checking_arguments
from holdfast.tune.schedulers.scored_scheduler import ScoredScheduler
from holdfast.tune.search.seeding import generator_for, seed_of


class AsyncHyperBandScheduler(ScoredScheduler):
    """Ends trials at rungs `grace_period * reduction_factor**k` unless they are among the best.

    Args:
        time_attr: What tells in results how far a trial is.
        metric: What to judge by.
        mode: Whether `metric` should become "min" or "max".
        max_t: Where trials end in any case.
        grace_period: No trial ends before.
        reduction_factor: One in so many goes on at a rung.
        brackets: How many sets of rungs there are, the later ones beginning later; trials are
            drawn to them.
        stop_last_trials: Whether trials end at `max_t`.
        seed: What decides to which bracket a trial is drawn; None for any.
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
        stop_last_trials: bool = True,  # noqa: FBT001, FBT002  # as it was always called
        *,
        seed: int | None = None,
    ) -> None:
        with checking_arguments(
            self, time_attr=time_attr, metric=metric, mode=mode, max_t=max_t, seed=seed,
            grace_period=grace_period, reduction_factor=reduction_factor, brackets=brackets,
            stop_last_trials=stop_last_trials,
        ) as found:  # fmt: skip
            found.metric()
            can_compare = found.number("max_t", "trials end there", above=0)
            can_compare &= found.number("grace_period", "no trial ends before", above=0)
            if can_compare and max_t < grace_period:
                found.add(
                    "max_t", f"below grace_period={grace_period!r}; no trial ends before that"
                )
            can_halve = found.number(
                "reduction_factor", "one in so many goes on at a rung", above=1
            )
            if can_compare and can_halve:
                found.milestones("reduction_factor", grace_period, max_t, reduction_factor)
            if found.whole("brackets", "trials are drawn to them", at_least=1):
                found.number("brackets", "trials are drawn to them", at_most=MILESTONES_MAX)
            found.flag("stop_last_trials")
            found.seed()
        super().__init__(time_attr, metric, mode)
        self._max_t = max_t
        self._stop_last_trials = bool(stop_last_trials)
        self._seed = seed_of(seed)
        rungs = milestones_for(max_t, grace_period, reduction_factor)
        self._brackets = [
            [Rung(milestone, reduction_factor) for milestone in rungs[s:]] for s in range(brackets)
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
            self._passes(trial, time, result)  # others are compared with it all the same

    def debug_string(self) -> str:
        lines = [f"AsyncHyperBand: {self._stopped} trials stopped"]
        for s, bracket in enumerate(self._brackets):
            told = (
                f"{rung.milestone:g}: {len(rung.scores)} trials, cutoff {rung.cutoff()}"
                for rung in reversed(bracket)
            )
            lines.append(f"Bracket {s}: " + " | ".join(told))
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
        for bracket, kept in zip(self._brackets, state["rungs"], strict=True):
            for rung, scores in zip(bracket, kept, strict=True):
                rung.become(scores)

    def _passes(self, trial: Trial, time: float, result: Mapping[str, Any]) -> bool:
        """Enter a trial at the highest rung it has reached; whether it is good enough for it.

        Lower rungs that it has jumped over are left alone: a late score is no match for early ones.
        """
        score = self._score(result)
        reached = [rung for rung in self._bracket_of(trial) if time >= rung.milestone]
        if score is None or not reached or trial.trial_id in reached[-1].scores:
            return True
        cutoff = reached[-1].cutoff()
        reached[-1].enter(trial.trial_id, score)
        return cutoff is None or score >= cutoff

    def _bracket_of(self, trial: Trial) -> list[Rung]:
        drawn = generator_for(self._seed, "bracket", trial.number)
        return drawn.choices(self._brackets, self._chances)[0]


class Rung:
    """The scores of all trials that came to one milestone."""

    def __init__(self, milestone: float, reduction_factor: float) -> None:
        self.milestone = milestone
        self.scores: dict[str, float] = {}
        self._quantile = 1 - 1 / reduction_factor
        self._ordered: list[float] = []

    def enter(self, trial_id: str, score: float) -> None:
        """Remember a score; one that is not a number counts for nobody's cutoff."""
        self.scores[trial_id] = score
        if not math.isnan(score):
            insort(self._ordered, score)

    def cutoff(self) -> float | None:
        """Return what a score must reach, None if there is nothing to compare with.

        It lies between the two scores next to the quantile, in proportion to its distance.
        """
        if not self._ordered:
            return None
        place = self._quantile * (len(self._ordered) - 1)
        below, above = self._ordered[math.floor(place)], self._ordered[math.ceil(place)]
        if below == above or math.isinf(below) or math.isinf(above):
            return below
        return below + (above - below) * (place - math.floor(place))

    def become(self, scores: Mapping[str, float]) -> None:
        """Have these scores and no others."""
        self.scores, self._ordered = {}, []
        for trial_id, score in scores.items():
            self.enter(trial_id, score)


def milestones_for(max_t: float, grace_period: float, reduction_factor: float) -> list[float]:
    """Return all rungs up to `max_t`, by multiplication: logarithms lose one now and then."""
    found = [grace_period]
    while found[-1] * reduction_factor <= max_t:
        found.append(found[-1] * reduction_factor)
    return found


ASHAScheduler = AsyncHyperBandScheduler

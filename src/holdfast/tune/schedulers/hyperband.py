"""HyperBand: brackets that trade the number of trials for how long each may run.

Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization". A trial that
reaches a milestone is paused until all trials of its bracket have reached it or are over. No trial
waits forever: when nothing else can run, a bracket that is not full is halved as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.study.trial import Status
from holdfast.tune.schedulers.arguments import checking_arguments
from holdfast.tune.schedulers.bracket import Bracket, Plan, plans_for
from holdfast.tune.schedulers.scored_scheduler import ScoredScheduler
from holdfast.tune.schedulers.trial_scheduler import WAITING, first_that_fits
from holdfast.tune.trial import StudyView, Trial


class HyperBandScheduler(ScoredScheduler):
    """Halves brackets of trials at milestones; the smallest bracket of a band is filled first.

    Args:
        time_attr: The result entry that measures progress.
        metric: The metric to judge by.
        mode: Whether `metric` should be small ("min") or large ("max").
        max_t: The progress of a trial that passes all milestones.
        reduction_factor: One in this many trials passes a milestone.
        stop_last_trials: Whether trials end at `max_t`.
    """

    requires_checkpoints = True
    trials_ahead = 1
    _supports_buffered_results = False

    _max_t: float
    _stop_last_trials: bool
    _plans: Sequence[Plan]
    _made: int
    _brackets: list[Bracket]
    _stopped: int

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,  # noqa: FBT001, FBT002  # as in Ray
    ) -> None:
        with checking_arguments(self, locals()) as arguments:
            arguments.metric()
            has_end = arguments.number("max_t", "the best trials run that far", at_least=1)
            meaning = "one in this many trials passes a milestone"
            if arguments.number("reduction_factor", meaning, above=1) and has_end:
                arguments.milestones("reduction_factor", 1, max_t, reduction_factor)
            arguments.flag("stop_last_trials")
        super().__init__(time_attr, metric, mode)
        self._max_t = max_t
        self._stop_last_trials = bool(stop_last_trials)
        self._plans = self._in_order(plans_for(max_t, reduction_factor))
        self._made = 0
        self._brackets = []
        self._stopped = 0

    def on_trial_add(self, view: StudyView, trial: Trial) -> None:
        super().on_trial_add(view, trial)
        if self._bracket_of(trial) is not None:
            return  # it comes back after a failure and stays in its bracket
        if not self._brackets or self._brackets[-1].is_closed:
            self._brackets.append(Bracket(self._made, self._made % len(self._plans)))
            self._made += 1
        bracket = self._brackets[-1]
        bracket.join(trial.trial_id, trial.number, self._plans[bracket.plan].room)

    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        bracket, time = self._bracket_of(trial), self._time(result)
        if bracket is None or time is None:
            return self.CONTINUE
        if time >= self._max_t and self._stop_last_trials:
            self._leave(view, trial)
            self._stopped += 1
            return self.STOP
        plan = self._plans[bracket.plan]
        if bracket.is_last_rung(plan):
            return self.CONTINUE
        if time < plan.milestones[bracket.rung]:
            bracket.depart(trial.trial_id)
            return self.CONTINUE
        score = self._score(result)
        if not bracket.waits(trial.trial_id):
            if score is None:
                return self.CONTINUE  # it is judged by its next result with a score
            bracket.arrive(trial.trial_id, time, score)
        elif self._is_stuck(view, trial):
            bracket.is_closed = True
        self._settle(view, bracket, trial)
        if trial.trial_id not in bracket.members:
            return self.STOP
        return self.PAUSE if bracket.waits(trial.trial_id) else self.CONTINUE

    def on_trial_complete(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> None:
        self._leave(view, trial)

    def on_trial_remove(self, view: StudyView, trial: Trial) -> None:
        self._leave(view, trial)

    def on_trial_error(self, view: StudyView, trial: Trial) -> None:
        if trial.is_finished():
            self._leave(view, trial)

    def choose_trial_to_run(self, view: StudyView) -> Trial | None:
        """Return a trial that need not wait, from the bracket with the least progress in its band.

        If nothing else runs or can run, the best waiting trial is started. With its next result,
        while all others still wait, its bracket is halved as it is.
        """
        order = sorted(self._brackets, key=self._progress)
        live = (view.get_trial(name) for bracket in order for name in bracket.members)
        free = (trial for trial in live if trial is not None and not self._must_wait(trial))
        strays = (trial for trial in view.get_trials() if self._bracket_of(trial) is None)
        idle = (trial for trial in strays if trial.status in WAITING)
        chosen = first_that_fits(view, free) or first_that_fits(view, idle)
        if chosen is None and self._is_stuck(view):
            ahead = (view.get_trial(name) for bracket in order for name in bracket.ranked())
            chosen = first_that_fits(view, (trial for trial in ahead if trial is not None))
        return chosen

    def debug_string(self) -> str:
        lines = [f"{type(self).__name__}: {self._stopped} trials stopped"]
        for bracket in self._brackets:
            plan = self._plans[bracket.plan]
            waiting = sum(map(bracket.waits, bracket.members))
            lines.append(
                f"Bracket {bracket.number}: {bracket.entrants} of {plan.room} trials joined, "
                f"{waiting} of {len(bracket.members)} wait at {plan.milestones[bracket.rung]}"
            )
        return "\n".join(lines)

    def get_state(self) -> dict[str, Any]:
        return {
            **super().get_state(),
            "made": self._made,
            "stopped": self._stopped,
            "brackets": [bracket.as_dict() for bracket in self._brackets],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self._made = state["made"]
        self._stopped = state["stopped"]
        self._brackets = [Bracket.from_dict(bracket) for bracket in state["brackets"]]

    def _in_order(self, plans: list[Plan]) -> list[Plan]:
        """Return the plans of a band in the order in which their brackets are filled."""
        return plans

    def _settle(self, view: StudyView, bracket: Bracket, judged: Trial | None = None) -> None:
        """Halve a bracket for as long as all its members have reached the milestone."""
        plan = self._plans[bracket.plan]
        bracket.retain(lambda name: name == (judged and judged.trial_id) or _is_live(view, name))
        while bracket.is_ready(plan):
            for trial_id in bracket.halve(plan):
                self._stopped += 1
                loser = view.get_trial(trial_id)
                if loser is not None and loser is not judged:
                    view.stop_trial(loser)
        if bracket.is_closed and not bracket.members:
            self._brackets.remove(bracket)

    def _leave(self, view: StudyView, trial: Trial) -> None:
        bracket = self._bracket_of(trial)
        if bracket is not None:
            del bracket.members[trial.trial_id]
            self._settle(view, bracket)

    def _bracket_of(self, trial: Trial) -> Bracket | None:
        joined = (bracket for bracket in self._brackets if trial.trial_id in bracket.members)
        return next(joined, None)

    def _must_wait(self, trial: Trial) -> bool:
        """Return whether a trial runs already, or is paused until others reach the milestone."""
        if trial.status != Status.PAUSED:
            return trial.status != Status.PENDING
        bracket = self._bracket_of(trial)
        return bracket is not None and bracket.waits(trial.trial_id)

    def _is_stuck(self, view: StudyView, ahead: Trial | None = None) -> bool:
        """Return whether all trials, except one that was sent ahead, wait for others in vain."""
        return all(
            trial is ahead or (trial.status == Status.PAUSED and self._must_wait(trial))
            for trial in view.get_trials()
        )

    def _progress(self, bracket: Bracket) -> tuple[int, float, int]:
        band = bracket.number // len(self._plans)
        share = bracket.rung / len(self._plans[bracket.plan].milestones)
        return band, share, bracket.number


def _is_live(view: StudyView, trial_id: str) -> bool:
    trial = view.get_trial(trial_id)
    return trial is not None and not trial.is_finished()

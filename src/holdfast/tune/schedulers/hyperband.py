"""HyperBand: brackets that trade how many trials there are for how long each may run.

Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization". A trial that
comes to a milestone waits, paused, until everybody in its bracket is there or over. Nobody waits
for ever: a bracket that nobody can fill is halved as it is once nothing else could run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.study.trial import Status, Trial
from holdfast.core.study.view import StudyView
from holdfast.tune.schedulers.arguments import checking_arguments
from holdfast.tune.schedulers.bracket import Bracket, Plan, plans_for
from holdfast.tune.schedulers.scored_scheduler import ScoredScheduler
from holdfast.tune.schedulers.trial_scheduler import WAITING, first_that_fits


class HyperBandScheduler(ScoredScheduler):
    """Halves brackets of trials at milestones; the smallest bracket of a band is filled first.

    Args:
        time_attr: What tells in results how far a trial is.
        metric: What to judge by.
        mode: Whether `metric` should become "min" or "max".
        max_t: How far a trial goes that is always among the best.
        reduction_factor: One in so many goes on at a milestone.
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
        stop_last_trials: bool = True,  # noqa: FBT001, FBT002  # as it was always called
    ) -> None:
        with checking_arguments(
            self, time_attr=time_attr, metric=metric, mode=mode, max_t=max_t,
            reduction_factor=reduction_factor, stop_last_trials=stop_last_trials,
        ) as found:  # fmt: skip
            found.metric()
            can_halve = found.number("max_t", "the best trials go so far", at_least=1)
            meaning = "one in so many goes on at a milestone"
            if found.number("reduction_factor", meaning, above=1) and can_halve:
                found.milestones("reduction_factor", 1, max_t, reduction_factor)
            found.flag("stop_last_trials")
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
            return  # it comes back after a failure, to its own bracket
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
                return self.CONTINUE  # it is judged by its next result that tells
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
        """Return a trial that need not wait, of the bracket that has come least far in its band.

        If nothing else runs or could, the best of those who wait is sent ahead. Its next result
        shows that nobody else came, and its bracket is halved as it is.
        """
        order = sorted(self._brackets, key=self._progress)
        live = (view.get_trial(name) for bracket in order for name in bracket.members)
        free = (trial for trial in live if trial is not None and not self._must_wait(trial))
        strays = (one for one in view.get_trials() if self._bracket_of(one) is None)
        idle = (trial for trial in strays if trial.status in WAITING)
        found = first_that_fits(view, free) or first_that_fits(view, idle)
        if found is None and self._is_stuck(view):
            ahead = (view.get_trial(name) for bracket in order for name in bracket.ranked())
            found = first_that_fits(view, (trial for trial in ahead if trial is not None))
        return found

    def debug_string(self) -> str:
        lines = [f"{type(self).__name__}: {self._stopped} trials stopped"]
        for bracket in self._brackets:
            plan = self._plans[bracket.plan]
            waiting = sum(map(bracket.waits, bracket.members))
            lines.append(
                f"Bracket {bracket.number}: {bracket.entrants} of {plan.room} trials came, "
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
        self._brackets = [Bracket.from_dict(kept) for kept in state["brackets"]]

    def _in_order(self, plans: list[Plan]) -> list[Plan]:
        """Return the brackets of a band in the order in which they are filled."""
        return plans

    def _settle(self, view: StudyView, bracket: Bracket, judged: Trial | None = None) -> None:
        """Halve a bracket for as long as everybody who is still in it is there."""
        plan = self._plans[bracket.plan]
        bracket.retain(lambda name: name == (judged and judged.trial_id) or _is_live(view, name))
        while bracket.is_ready(plan):
            for loser in bracket.halve(plan):
                self._stopped += 1
                other = view.get_trial(loser)
                if other is not None and other is not judged:
                    view.stop_trial(other)
        if bracket.is_closed and not bracket.members:
            self._brackets.remove(bracket)

    def _leave(self, view: StudyView, trial: Trial) -> None:
        bracket = self._bracket_of(trial)
        if bracket is not None:
            del bracket.members[trial.trial_id]
            self._settle(view, bracket)

    def _bracket_of(self, trial: Trial) -> Bracket | None:
        return next((one for one in self._brackets if trial.trial_id in one.members), None)

    def _must_wait(self, trial: Trial) -> bool:
        """Whether a trial runs already, or is paused where others of its bracket are to come."""
        if trial.status != Status.PAUSED:
            return trial.status != Status.PENDING
        bracket = self._bracket_of(trial)
        return bracket is not None and bracket.waits(trial.trial_id)

    def _is_stuck(self, view: StudyView, but: Trial | None = None) -> bool:
        """Whether all trials wait for others that will not come, apart from one that was sent."""
        return all(
            trial is but or (trial.status == Status.PAUSED and self._must_wait(trial))
            for trial in view.get_trials()
        )

    def _progress(self, bracket: Bracket) -> tuple[int, float, int]:
        band = bracket.number // len(self._plans)
        return (
            band,
            bracket.rung / len(self._plans[bracket.plan].milestones),
            bracket.number,
        )


def _is_live(view: StudyView, trial_id: str) -> bool:
    found = view.get_trial(trial_id)
    return found is not None and not found.is_finished()

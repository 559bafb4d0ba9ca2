"""HyperBand for BOHB: budgets are told to a searcher that learns from all of them.

Falkner, Klein, Hutter, "BOHB: Robust and Efficient Hyperparameter Optimization at Scale".
"""

from __future__ import annotations

from typing import Any

from holdfast.core.study_view import StudyView
from holdfast.core.trial import Trial
from holdfast.tune.schedulers.bracket import Plan
from holdfast.tune.schedulers.hyperband import HyperBandScheduler


class HyperBandForBOHB(HyperBandScheduler):
    """HyperBand that fills the largest bracket first, and notes in results what they ran for.

    The searcher finds the milestone of a result's bracket as `hyperband_info/budget`.
    """

    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        bracket = self._bracket_of(trial)
        if bracket is not None:
            milestones = self._plans[bracket.plan].milestones
            result["hyperband_info"] = {"budget": milestones[bracket.rung]}
        return super().on_trial_result(view, trial, result)

    def _in_order(self, plans: list[Plan]) -> list[Plan]:
        return plans[::-1]

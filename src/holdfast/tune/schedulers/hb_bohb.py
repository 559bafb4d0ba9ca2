"""HyperBand for BOHB: adds budgets to results, for a searcher that learns from all of them.

Falkner, Klein, Hutter, "BOHB: Robust and Efficient Hyperparameter Optimization at Scale".
"""

from __future__ import annotations

from typing import Any

from holdfast.tune.schedulers.bracket import Plan
from holdfast.tune.schedulers.hyperband import HyperBandScheduler
from holdfast.tune.trial import StudyView, Trial


class HyperBandForBOHB(HyperBandScheduler):
    """HyperBand that fills the largest bracket first, and adds budgets to results.

    Every result gets the next milestone as `hyperband_info/milestone`; the result that reaches it
    also gets it as `hyperband_info/budget`. Earlier results have no budget, because a model of that
    budget would rate them worse than they are.
    """

    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        bracket, time = self._bracket_of(trial), self._time(result)
        if bracket is not None and time is not None:
            milestone = self._plans[bracket.plan].milestones[bracket.rung]
            info = {"milestone": milestone}
            result["hyperband_info"] = info | ({"budget": milestone} if time >= milestone else {})
        return super().on_trial_result(view, trial, result)

    def _in_order(self, plans: list[Plan]) -> list[Plan]:
        return plans[::-1]

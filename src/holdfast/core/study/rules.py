"""Rules of a study: budgets, and what trials do when they end."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.run.budget import Budget
from holdfast.core.study.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a study deals with losses and ends.

    Attributes:
        fail_fast: Whether the first trial that fails for good ends the study.
        saves_at_end: Whether a trial saves itself when it is stopped.
        exports_at_end: Whether a trial writes its model when it is stopped.
        metric: The metric that the best trial is known by, None if it was not said.
    """

    budget: Budget = field(default_factory=Budget)
    backoff_max_s: float = 30.0
    fail_fast: bool = False
    saves_at_end: bool = False
    exports_at_end: bool = False
    metric: str | None = None

    def miss_something_of(self, trial: Trial) -> bool:
        """Whether a trial that is to end has not done what only its process can do."""
        return self.exports_at_end or (
            self.saves_at_end and trial.saved_step() < trial.decision.step
        )

"""`TuneConfig`, how a study searches, and `ResumeConfig`, which trials a restored study resumes."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.api.assignment import assignable, config_repr
from holdfast.api.checks import checking
from holdfast.api.deprecated import warn_deprecated
from holdfast.api.did_you_mean import rejects_unknown_arguments
from holdfast.control.study.plan import Resumption


@assignable
@rejects_unknown_arguments
@dataclass(unsafe_hash=True, repr=False)
class TuneConfig:
    """What a study searches for, and how.

    Attributes:
        mode: Whether "max" or "min" of the metric is best.
        metric: The metric that trials are judged by, `a/b` for a nested one.
        search_alg: Proposes configs; by default grids are enumerated and the rest is sampled.
        scheduler: Judges trials while they run; by default none is stopped early.
        num_samples: How often the whole space is sampled; -1 for no end.
        max_concurrent_trials: How many run at once; None for as many as fit.
        time_budget_s: Seconds, or a timedelta, after which the study ends.
        reuse_actors: Whether a process runs one trial after the other.
        trial_name_creator: Given a trial, returns its name.
        trial_dirname_creator: Given a trial, returns the name of its folder.
        chdir_to_trial_dir: As in Ray; ignored, the working directory never changes.
    """

    mode: str | None = None
    metric: str | None = None
    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: float | dt.timedelta | None = None
    reuse_actors: bool = False
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    chdir_to_trial_dir: bool | None = None

    def __post_init__(self) -> None:
        with checking(self) as problems:
            if self.mode not in (None, "min", "max") and not isinstance(self.mode, list):
                problems.add("mode", "it is 'min' or 'max'")
            if not isinstance(self.metric, list):
                problems.text("metric", "it names a metric that trials report, None for none")
            meaning = "it is how often the space is sampled, -1 for no end"
            if problems.whole("num_samples", meaning, at_least=-1) and self.num_samples == 0:
                problems.add("num_samples", f"{meaning}; 0 would try nothing")
            if self.max_concurrent_trials is not None:
                meaning = "it is how many trials run at once, None or 0 for no limit"
                problems.whole("max_concurrent_trials", meaning, at_least=0)
            if not isinstance(self.time_budget_s, dt.timedelta | None):
                meaning = "it is how long the study may take, None for no limit"
                problems.seconds("time_budget_s", meaning, above_zero=True)
            problems.flag("reuse_actors")
            for name in ("trial_name_creator", "trial_dirname_creator"):
                if getattr(self, name) is not None and not callable(getattr(self, name)):
                    problems.add(name, "it is a function of a trial, None for the usual names")
        if self.chdir_to_trial_dir:
            warn_deprecated("chdir_to_trial_dir is ignored: the working directory stays as it is")

    def __repr__(self) -> str:
        return config_repr(self, TuneConfig())

    @property
    def budget_s(self) -> float | None:
        """The time budget in seconds, None for no limit."""
        budget = self.time_budget_s
        return budget.total_seconds() if isinstance(budget, dt.timedelta) else budget


class _ResumeType(enum.Enum):
    RESUME = "resume"
    RESTART = "restart"
    SKIP = "skip"


@assignable
@rejects_unknown_arguments
@dataclass(unsafe_hash=True)
class ResumeConfig:
    """What happens to finished, unfinished and failed trials when a study resumes."""

    ResumeType: ClassVar[type[_ResumeType]] = _ResumeType

    finished: _ResumeType = _ResumeType.SKIP
    unfinished: _ResumeType = _ResumeType.RESUME
    errored: _ResumeType = field(default=_ResumeType.SKIP)

    def __post_init__(self) -> None:
        with checking(self) as problems:
            for name in ("finished", "unfinished", "errored"):
                if not isinstance(getattr(self, name), _ResumeType):
                    problems.add(name, "it is a ResumeConfig.ResumeType: RESUME, RESTART or SKIP")
            if self.finished is not _ResumeType.SKIP:
                rule = "finished trials are not run again"
                problems.add("finished", rule, hint="tuner.extend(stop=…) continues them")
            if self.unfinished is _ResumeType.RESTART:
                rule = "RESUME continues from the last checkpoint, SKIP ends them"
                problems.add("unfinished", rule)

    def to_resumption(self) -> Resumption:
        """Return the same as the type that the driver uses."""
        return Resumption(
            unfinished=self.unfinished is _ResumeType.RESUME,
            errored=self.errored is _ResumeType.RESUME,
            errored_from_scratch=self.errored is _ResumeType.RESTART,
        )

"""A study as its user says it: what to run, what to search, how, and where it is kept."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.api.config import RunConfig
from holdfast.core.names import shown
from holdfast.core.study.rules import Rules
from holdfast.errors import ConfigError
from holdfast.storage.base import Store
from holdfast.storage.locate import child, open_store
from holdfast.tune.callback import Callback
from holdfast.tune.schedulers import FIFOScheduler, TrialScheduler, create_scheduler
from holdfast.tune.search import create_searcher
from holdfast.tune.search.basic_variant import BasicVariantGenerator
from holdfast.tune.search.generator import SearchPlan
from holdfast.tune.search.objects import Objects, must_have_same_keys
from holdfast.tune.search.stored_space import space_from_data
from holdfast.tune.search.wrapping import innermost
from holdfast.tune.stopper import CombinedStopper, Stopper, TimeoutStopper, stopper_of
from holdfast.tune.study.stored_spec import StoredStudy, rules_of
from holdfast.tune.trainables.kinds import Runnable
from holdfast.tune.trainables.trainer_space import checked_space
from holdfast.tune.tune_config import TuneConfig


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    """A study as its user says it.

    Attributes:
        has_made_up_name: Whether `name` is only what it would be called, unless that is taken.
        stored: What was kept of it, if it is to go on; then that counts, not the configs of a
            script that has changed since.
        restore_path: A checkpoint that trials begin with while they have none of their own.
        export_formats: What trials write their models as when they end.
        loggers: What writes results to files; None for those there are by default.
    """

    trainable: Runnable
    tune_config: TuneConfig
    run_config: RunConfig
    param_space: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    has_made_up_name: bool = False
    stored: StoredStudy | None = None
    resources: Any = None
    restore_path: str | None = None
    export_formats: tuple[str, ...] = ()
    loggers: Sequence[Callback] | None = None

    def __post_init__(self) -> None:
        space = checked_space(self.param_space, is_trainer=self.trainable.is_trainer)
        object.__setattr__(self, "param_space", space)

    def store(self) -> Store:
        """Return the study's own store."""
        config = self.run_config
        return child(open_store(config.storage_path, config.storage_filesystem), self.name)

    # ------------------------------------------------------------------ who judges

    def search(self) -> SearchPlan:
        """Return what the study will try; what cannot work, or be kept, is told now."""
        config = self.tune_config
        search_alg = _fresh(config.search_alg)
        if isinstance(search_alg, str):
            search_alg = create_searcher(search_alg)
        scheduler = config.scheduler
        learns = search_alg is not None and not isinstance(
            innermost(search_alg), BasicVariantGenerator
        )
        if learns and isinstance(scheduler, TrialScheduler) and not scheduler.accepts_searcher:
            raise ConfigError(
                f"{type(scheduler).__name__} changes configs itself and goes with no search_alg",
                hint="leave out search_alg, or take another scheduler",
            )
        space, again = self._space()
        return SearchPlan(
            search_alg,
            space,
            num_samples=config.num_samples,
            metric=config.metric if learns else None,
            mode=config.mode if learns else None,
            max_concurrent=config.max_concurrent_trials if learns else None,
            objects=again,
        )

    def _space(self) -> tuple[Mapping[str, Any], Objects | None]:
        """Return the search space: of a study that goes on, the one it was begun with."""
        if self.stored is None:
            return self.param_space, None
        again = None
        if self.param_space:
            must_have_same_keys(self.stored.keys, self.param_space)
            _, again = Objects.of(dict(self.param_space))
        return space_from_data(self.stored.space, again or Objects()), again

    def scheduler(self) -> TrialScheduler:
        """Return who judges trials while they run."""
        config = self.tune_config
        scheduler = _fresh(config.scheduler)
        if isinstance(scheduler, str):
            scheduler = create_scheduler(scheduler)
        if scheduler is None:
            scheduler = FIFOScheduler()
        if not isinstance(scheduler, TrialScheduler):
            raise ConfigError(
                f"scheduler={shown(scheduler)} is not a scheduler",
                hint="an object of a class that derives from tune.schedulers.TrialScheduler",
            )
        if scheduler.requires_checkpoints and not self.trainable.can_go_on:
            raise ConfigError(
                f"{type(scheduler).__name__} pauses trials, and {self.trainable.name} cannot be"
                " saved and go on from there",
                hint="write save_checkpoint and load_checkpoint, or take an ASHAScheduler",
            )
        is_taken = scheduler.set_search_properties(config.metric, config.mode)
        if not is_taken and (config.metric or config.mode):
            raise ConfigError(
                f"metric and mode are given to {type(scheduler).__name__} and to TuneConfig",
                hint="give them in one place",
            )
        scheduler.check_ready()
        if self.stored is None:
            scheduler.check_space(self.param_space)
        scheduler.get_state()  # what cannot be kept is told now, not after the crash
        return scheduler

    def rules(self) -> Rules:
        """Return what is said about losses and ends, in the words of the layers below."""
        return rules_of(
            self.run_config.failure_config,
            self.tune_config.metric,
            saves_at_end=self.trainable.saves_at_end(self.run_config.checkpoint_config),
            exports_at_end=bool(self.export_formats),
        )

    def stopper(self) -> Stopper:
        """Return who says when a trial, or the study, has run for long enough."""
        found = stopper_of(_fresh(self.run_config.stop))
        budget_s = self.tune_config.budget_s
        return found if budget_s is None else CombinedStopper(found, TimeoutStopper(budget_s))


def _fresh(judge: Any) -> Any:
    """Return a copy, so that what one study teaches it does not go into another."""
    try:
        return copy.deepcopy(judge)
    except Exception:  # noqa: BLE001  # a user's own object may not be made for it
        return judge

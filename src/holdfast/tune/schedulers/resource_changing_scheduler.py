"""A scheduler that wraps another one and changes the resources of running trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.api.checks import this_is
from holdfast.errors import ConfigError
from holdfast.tune.schedulers.resource_shares import (
    Bundles,
    DistributeResources,
    DistributeResourcesToTopJob,
    bundles_of,
    evenly_distribute_cpus_gpus,
    evenly_distribute_cpus_gpus_distributed,
    total_of,
)
from holdfast.tune.schedulers.trial_scheduler import WAITING, FIFOScheduler, TrialScheduler
from holdfast.tune.trial import StudyView, Trial

__all__ = [
    "DistributeResources",
    "DistributeResourcesToTopJob",
    "ResourceChangingScheduler",
    "evenly_distribute_cpus_gpus",
    "evenly_distribute_cpus_gpus_distributed",
]

AllocationFunction = Callable[[StudyView, Trial, dict[str, Any], "ResourceChangingScheduler"], Any]


class ResourceChangingScheduler(TrialScheduler):
    """Changes the resources of trials that another scheduler lets continue.

    A trial whose resources change saves, pauses, and starts again with the new resources.

    Args:
        base_scheduler: The scheduler that judges trials; a `FIFOScheduler` if None.
        resources_allocation_function: Called as `function(view, trial, result, scheduler)`. Returns
            the trial's new resources, as a dict, a list with a dict for each process, or a
            `PlacementGroupFactory`; None to leave them. Without a function nothing changes.
    """

    requires_checkpoints = True
    _supports_buffered_results = False

    _base: TrialScheduler
    _function: AllocationFunction | None
    _first: dict[str, Bundles]

    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: AllocationFunction | None = DistributeResources(),  # noqa: B008  # it does not change
    ) -> None:
        if base_scheduler is not None and not isinstance(base_scheduler, TrialScheduler):
            raise ConfigError(f"base_scheduler is not a scheduler, {this_is(base_scheduler)}")
        function = resources_allocation_function
        if function is not None and not callable(function):
            raise ConfigError(
                f"resources_allocation_function cannot be called, {this_is(function)}",
                hint="DistributeResources(), or a function(view, trial, result, scheduler)",
            )
        self._base = base_scheduler or FIFOScheduler()
        self._function = function
        self._first = {}

    @property
    def base_scheduler(self) -> TrialScheduler:
        """The scheduler that judges trials."""
        return self._base

    @property
    def metric(self) -> str | None:
        return self._base.metric

    @property
    def mode(self) -> str | None:
        """Whether the metric should be small ("min") or large ("max"), None if not set."""
        return self._base._mode  # noqa: SLF001  # schedulers read it from each other

    @property
    def accepts_searcher(self) -> bool:  # type: ignore[override]
        """Whether the base scheduler does."""
        return self._base.accepts_searcher

    @property
    def trials_ahead(self) -> int:  # type: ignore[override]
        """As many as the base scheduler wants."""
        return self._base.trials_ahead

    def check_ready(self) -> None:
        self._base.check_ready()

    def check_space(self, space: Mapping[str, Any]) -> None:
        self._base.check_space(space)

    def base_resources(self, trial: Trial) -> Bundles:
        """Return the resources that a trial was created with."""
        return self._first.get(trial.trial_id, bundles_of(trial.resources))

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        return self._base.set_search_properties(metric, mode, **spec)

    def on_trial_add(self, view: StudyView, trial: Trial) -> None:
        live = {each.trial_id for each in view.get_trials()}
        self._first = {name: bundles for name, bundles in self._first.items() if name in live}
        self._first.setdefault(trial.trial_id, bundles_of(trial.resources))
        self._base.on_trial_add(view, trial)

    def on_trial_error(self, view: StudyView, trial: Trial) -> None:
        self._base.on_trial_error(view, trial)
        if trial.is_finished():
            self._first.pop(trial.trial_id, None)

    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        self._shrink_stuck_trials(view)
        decision = self._base.on_trial_result(view, trial, result)
        if decision != self.CONTINUE or self._function is None:
            return decision
        wanted = self._function(view, trial, result, self)
        if wanted is None or bundles_of(wanted) == bundles_of(trial.resources):
            return decision
        view.resize(trial, bundles_of(wanted))
        return self.NOOP

    def on_trial_complete(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> None:
        self._base.on_trial_complete(view, trial, result)
        self._first.pop(trial.trial_id, None)

    def on_trial_remove(self, view: StudyView, trial: Trial) -> None:
        self._base.on_trial_remove(view, trial)
        self._first.pop(trial.trial_id, None)

    def on_trial_pause(self, view: StudyView, trial: Trial) -> None:
        self._base.on_trial_pause(view, trial)

    def _shrink_stuck_trials(self, view: StudyView) -> None:
        """Reset waiting trials to their first resources where there is no room for the newer ones.

        Otherwise smaller trials could keep them waiting forever. This depends on the free resources
        alone, because whether a trial may start at this moment also depends on time.
        """
        free = view.free_resources()
        for trial in view.get_trials():
            base, wanted = self.base_resources(trial), bundles_of(trial.resources)
            if trial.status in WAITING and wanted != base:
                needs = total_of(wanted).items()
                if any(amount > free.get(name, 0.0) for name, amount in needs):
                    view.resize(trial, base)

    def choose_trial_to_run(self, view: StudyView) -> Trial | None:
        return self._base.choose_trial_to_run(view)

    def debug_string(self) -> str:
        return f"(ResourceChangingScheduler) {self._base.debug_string()}"

    def take_files(self) -> dict[str, str]:
        return self._base.take_files()

    def get_state(self) -> dict[str, Any]:
        first = {name: list(map(dict, bundles)) for name, bundles in self._first.items()}
        return {**super().get_state(), "base": self._base.get_state(), "first": first}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self._base.set_state(state["base"])
        self._first = {name: bundles_of(bundles) for name, bundles in state["first"].items()}

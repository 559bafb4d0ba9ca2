"""How free resources are shared between trials: arithmetic, nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.api.checks import is_number
from holdfast.core.checkpoint.retention import score_of
from holdfast.core.names import shown
from holdfast.core.study.trial import Status, Trial
from holdfast.core.study.view import StudyView
from holdfast.tune.errors import TuneError
from holdfast.tune.schedulers.arguments import checking_arguments

if TYPE_CHECKING:
    from holdfast.tune.schedulers.resource_changing_scheduler import ResourceChangingScheduler

Bundles = tuple[dict[str, float], ...]
CRUMB = 1e-9  # what floats leave over


class DistributeResources:
    """Shares what is free evenly between all trials that are not over.

    No trial gets less than it began with. What cannot be shared evenly stays free.

    Args:
        add_bundles: Whether a trial gets more processes; if not, those it has get more.
        increase_by: What a trial gets more of at a time, as `{"CPU": 2}`; one CPU, and one GPU,
            if None.
        increase_by_times: How many times `increase_by` a trial may get on top; any number if less
            than 1. Without `increase_by` it means nothing.
        reserve_resources: What is left for others.
    """

    def __init__(
        self,
        add_bundles: bool = False,  # noqa: FBT001, FBT002  # as it was always called
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
    ) -> None:
        with checking_arguments(
            self, add_bundles=add_bundles, increase_by=increase_by,
            increase_by_times=increase_by_times, reserve_resources=reserve_resources,
        ) as found:  # fmt: skip
            found.flag("add_bundles")
            found.number("increase_by_times", "it counts how often `increase_by` is added")
            if increase_by is not None and not (
                _are_amounts(increase_by) and any(increase_by.values())
            ):
                found.add("increase_by", "not a dict of amounts", hint="increase_by={'CPU': 1}")
            if reserve_resources is not None and not _are_amounts(reserve_resources):
                found.add("reserve_resources", "not a dict of amounts")
        self.add_bundles = bool(add_bundles)
        self.increase_by = dict(increase_by) if increase_by else None
        self.increase_by_times = increase_by_times
        self.reserve_resources = dict(reserve_resources or {})

    def __call__(
        self,
        tune_controller: StudyView,
        trial: Trial,
        result: Mapping[str, Any],
        scheduler: ResourceChangingScheduler,
    ) -> Bundles | None:
        """Return what a trial should have, None if there is nothing to share."""
        free = self._free(tune_controller, scheduler)
        share = 1 / max(len(tune_controller.get_trials()), 1)
        return self._raised(scheduler.base_resources(trial), free, share)

    def _free(self, view: StudyView, scheduler: ResourceChangingScheduler) -> dict[str, float]:
        """Return what is left once every trial that is not over has what it began with."""
        free = dict(view.free_resources())
        for trial in view.get_trials():
            if trial.status == Status.RUNNING:
                _add(free, total_of(bundles_of(trial.resources)), 1)
        _add(free, self.reserve_resources, -1)
        for trial in view.get_trials():
            _add(free, total_of(scheduler.base_resources(trial)), -1)
        return free

    def _raised(self, base: Bundles, free: Mapping[str, float], share: float) -> Bundles:
        """Return what a trial began with and its share of what is free."""
        raised = [dict(bundle) for bundle in base]
        units = [self.increase_by] if self.increase_by else _units_of(base)
        for unit in units:
            times = min(
                math.floor(free.get(name, 0.0) * share / amount + CRUMB)
                for name, amount in unit.items()
                if amount
            )
            if self.increase_by and self.increase_by_times >= 1:
                times = min(times, self.increase_by_times)
            for number in range(times):
                if self.add_bundles:
                    raised.append(dict(unit))
                else:
                    _add(raised[number % len(base)], unit, 1)
        return bundles_of(raised)


class DistributeResourcesToTopJob(DistributeResources):
    """Gives all that is free to the trial that is best now; the others have what they began with.

    Arguments as for `DistributeResources`, and

    Args:
        metric: What to judge by; the scheduler's if None.
        mode: Whether `metric` should become "min" or "max"; the scheduler's if None.
    """

    def __init__(
        self,
        add_bundles: bool = False,  # noqa: FBT001, FBT002  # as it was always called
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        with checking_arguments(self, metric=metric, mode=mode) as found:
            found.metric()
        self.metric = metric
        self.mode = mode

    def __call__(
        self,
        tune_controller: StudyView,
        trial: Trial,
        result: Mapping[str, Any],
        scheduler: ResourceChangingScheduler,
    ) -> Bundles | None:
        metric, mode = self.metric or scheduler.metric, self.mode or scheduler.mode
        if not metric or not mode:
            raise TuneError(
                f"{type(self).__name__} has metric={metric!r} and mode={mode!r}, and cannot tell "
                "which trial is best",
                hint="DistributeResourcesToTopJob(metric='loss', mode='min')",
            )
        best, best_score = None, -math.inf
        for other in tune_controller.get_trials():
            told = result if other is trial else other.last_result
            score = score_of(told, metric)
            if score is None or math.isnan(score):
                continue
            score = score if mode == "max" else -score
            if best is None or score > best_score:
                best, best_score = other, score
        if best is None:
            return None
        base = scheduler.base_resources(trial)
        if best is not trial:
            return base
        return self._raised(base, self._free(tune_controller, scheduler), 1.0)


evenly_distribute_cpus_gpus = DistributeResources(add_bundles=False)
evenly_distribute_cpus_gpus_distributed = DistributeResources(add_bundles=True)


def bundles_of(resources: Any) -> Bundles:
    """Return resources as one dict of amounts for each process; what is 0 is left out.

    Raises:
        TuneError: This does not say what a trial should have.
    """
    found = getattr(resources, "bundles", resources)  # of a PlacementGroupFactory
    found = [found] if isinstance(found, Mapping) else found
    if not isinstance(found, Sequence) or not found or not all(map(_are_amounts, found)):
        raise TuneError(
            f"{shown(resources)} does not say what a trial should have",
            hint="a dict as {'CPU': 2}, a list of such dicts, or a PlacementGroupFactory",
        )
    return tuple(
        {name: float(amount) for name, amount in bundle.items() if amount} for bundle in found
    )


def total_of(bundles: Bundles) -> dict[str, float]:
    """Return what several processes have together."""
    total: dict[str, float] = {}
    for bundle in bundles:
        _add(total, bundle, 1)
    return total


def _units_of(base: Bundles) -> list[dict[str, float]]:
    """Return one of each of CPU and GPU, of which a trial has any."""
    total = total_of(base)
    return [{name: 1.0} for name in ("CPU", "GPU") if total.get(name)]


def _add(amounts: dict[str, float], more: Mapping[str, float], times: int) -> None:
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0.0) + times * amount


def _are_amounts(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(isinstance(name, str) for name in value) and all(
        is_number(amount) and 0 <= amount < math.inf for amount in value.values()
    )

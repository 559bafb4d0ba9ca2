"""Functions that share free resources between trials: arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.api.checks import is_number
from holdfast.core.checkpoint.retention import score_of
from holdfast.core.names import shown
from holdfast.core.study.trial import Status
from holdfast.tune.errors import TuneError
from holdfast.tune.schedulers.arguments import checking_arguments
from holdfast.tune.trial import StudyView, Trial

if TYPE_CHECKING:
    from holdfast.tune.schedulers.resource_changing_scheduler import ResourceChangingScheduler

Bundles = tuple[dict[str, float], ...]
ROUNDING = 1e-9  # more than the error of a few float operations


class DistributeResources:
    """Shares free resources evenly between all trials that are not over.

    No trial gets less than it started with. What cannot be shared evenly stays free.

    Args:
        add_bundles: Whether a trial gets more processes; if not, its processes get more each.
        increase_by: The step in which a trial grows, as `{"CPU": 2}`; None for one CPU and one GPU.
        increase_by_times: How many times `increase_by` a trial may get at most; no limit if less
            than 1. Ignored without `increase_by`.
        reserve_resources: Resources that trials leave free.
    """

    def __init__(
        self,
        add_bundles: bool = False,  # noqa: FBT001, FBT002  # as in Ray
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
    ) -> None:
        with checking_arguments(self, locals()) as arguments:
            arguments.flag("add_bundles")
            arguments.number("increase_by_times", "it counts how often `increase_by` is added")
            if increase_by is not None and not (
                _are_amounts(increase_by) and any(increase_by.values())
            ):
                arguments.add("increase_by", "not a dict of amounts", hint="increase_by={'CPU': 1}")
            if reserve_resources is not None and not _are_amounts(reserve_resources):
                arguments.add("reserve_resources", "not a dict of amounts")
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
        """Return the resources that a trial should have, None to leave it as it is."""
        free = self._free(tune_controller, scheduler)
        share = 1 / max(len(tune_controller.get_trials()), 1)
        return self._raised(scheduler.base_resources(trial), free, share)

    def _free(self, view: StudyView, scheduler: ResourceChangingScheduler) -> dict[str, float]:
        """Return what is left when every trial that is not over has its first resources."""
        free = dict(view.free_resources())
        for trial in view.get_trials():
            if trial.status == Status.RUNNING:
                _add(free, total_of(bundles_of(trial.resources)), 1)
        _add(free, self.reserve_resources, -1)
        for trial in view.get_trials():
            _add(free, total_of(scheduler.base_resources(trial)), -1)
        return free

    def _raised(self, base: Bundles, free: Mapping[str, float], share: float) -> Bundles:
        """Return a trial's first resources and its share of the free ones."""
        raised = [dict(bundle) for bundle in base]
        units = [self.increase_by] if self.increase_by else _units_of(base)
        for unit in units:
            times = min(
                math.floor(free.get(name, 0.0) * share / amount + ROUNDING)
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
    """Gives all free resources to the trial that is best now; the others keep their first ones.

    Arguments as for `DistributeResources`, and

    Args:
        metric: The metric to judge by; the scheduler's if None.
        mode: Whether `metric` should be small ("min") or large ("max"); the scheduler's if None.
    """

    def __init__(
        self,
        add_bundles: bool = False,  # noqa: FBT001, FBT002  # as in Ray
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        with checking_arguments(self, locals()) as arguments:
            arguments.metric()
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
                f"{type(self).__name__} has metric={metric!r} and mode={mode!r}, but needs both to "
                "find the best trial",
                hint="DistributeResourcesToTopJob(metric='loss', mode='min')",
            )
        best, best_score = None, -math.inf
        for other in tune_controller.get_trials():
            score = score_of(result if other is trial else other.last_result, metric)
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
    """Return resources as one dict of amounts for each process, without amounts of 0.

    Raises:
        TuneError: `resources` has none of the forms that the hint names.
    """
    bundles = getattr(resources, "bundles", resources)  # of a PlacementGroupFactory
    bundles = [bundles] if isinstance(bundles, Mapping) else bundles
    if not isinstance(bundles, Sequence) or not bundles or not all(map(_are_amounts, bundles)):
        raise TuneError(
            f"{shown(resources)} does not say what resources a trial should have",
            hint="return a dict like {'CPU': 2}, a list of such dicts, or a PlacementGroupFactory",
        )
    return tuple(
        {name: float(amount) for name, amount in bundle.items() if amount} for bundle in bundles
    )


def total_of(bundles: Bundles) -> dict[str, float]:
    """Return the sum of the bundles."""
    total: dict[str, float] = {}
    for bundle in bundles:
        _add(total, bundle, 1)
    return total


def _units_of(base: Bundles) -> list[dict[str, float]]:
    """Return one CPU and one GPU, each only if the trial has any."""
    total = total_of(base)
    return [{name: 1.0} for name in ("CPU", "GPU") if total.get(name)]


def _add(amounts: dict[str, float], bundle: Mapping[str, float], times: int) -> None:
    for name, amount in bundle.items():
        amounts[name] = amounts.get(name, 0.0) + times * amount


def _are_amounts(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(isinstance(name, str) for name in value) and all(
        is_number(amount) and 0 <= amount < math.inf for amount in value.values()
    )

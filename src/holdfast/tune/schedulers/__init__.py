"""Schedulers: decide which trials run, pause, end early, or continue from another one's weights."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from typing import Any

from holdfast.errors import ConfigError
from holdfast.tune.schedulers.async_hyperband import ASHAScheduler, AsyncHyperBandScheduler
from holdfast.tune.schedulers.hb_bohb import HyperBandForBOHB
from holdfast.tune.schedulers.hyperband import HyperBandScheduler
from holdfast.tune.schedulers.median_stopping_rule import MedianStoppingRule
from holdfast.tune.schedulers.pb2 import PB2
from holdfast.tune.schedulers.pbt import PopulationBasedTraining, PopulationBasedTrainingReplay
from holdfast.tune.schedulers.resource_changing_scheduler import ResourceChangingScheduler
from holdfast.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler

__all__ = [
    "PB2",
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "FIFOScheduler",
    "HyperBandForBOHB",
    "HyperBandScheduler",
    "MedianStoppingRule",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "ResourceChangingScheduler",
    "TrialScheduler",
    "create_scheduler",
]

_BY_NAME: dict[str, type[TrialScheduler]] = {
    "fifo": FIFOScheduler,
    "async_hyperband": AsyncHyperBandScheduler,
    "asynchyperband": AsyncHyperBandScheduler,
    "asha": AsyncHyperBandScheduler,
    "median_stopping_rule": MedianStoppingRule,
    "medianstopping": MedianStoppingRule,
    "hyperband": HyperBandScheduler,
    "hb_bohb": HyperBandForBOHB,
    "pbt": PopulationBasedTraining,
    "pbt_replay": PopulationBasedTrainingReplay,
    "pb2": PB2,
    "resource_changing": ResourceChangingScheduler,
}


def create_scheduler(scheduler: str, **kwargs: Any) -> TrialScheduler:
    """Return a new scheduler by its short name, made with `kwargs`.

    Raises:
        ConfigError: No scheduler has that name, or it does not take these arguments.
    """
    kind = _BY_NAME.get(str(scheduler).lower())
    if kind is None:
        raise ConfigError(
            f"there is no scheduler {scheduler!r}; there are {', '.join(_BY_NAME)}",
            hint=_nearest(str(scheduler).lower(), _BY_NAME),
        )
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    if unknown := [name for name in kwargs if name not in parameters]:
        hints = [hint for name in unknown if (hint := _nearest(name, parameters))]
        raise ConfigError(
            f"{kind.__name__} has no argument {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(parameters) or 'none'}",
            hint="; ".join(hints) or None,
        )
    required = [
        name for name, parameter in parameters.items() if parameter.default is parameter.empty
    ]
    if missing := [name for name in required if name not in kwargs]:
        raise ConfigError(f"{kind.__name__} needs {', '.join(missing)}")
    return kind(**kwargs)


def _nearest(name: str, names: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"{near[0]} for {name}" if near else None

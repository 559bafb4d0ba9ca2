"""What a search space says of the training runs that are a trainer's trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from holdfast.api.scaling import ScalingConfig, searched_fields
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.tune.search.domains import Categorical
from holdfast.tune.search.plain import name_of

_RUN, _SCALING = "run_config", "scaling_config"


def checked_space(space: Mapping[str, Any], *, is_trainer: bool) -> dict[str, Any]:
    """Return a search space in which a `ScalingConfig` with domains is a dictionary of its fields.

    So its fields are searched and kept like all other values. That is for trainers, which make a
    `ScalingConfig` of what was drawn; anywhere else nobody would draw, and it is refused. So is a
    `run_config` for a trainer: where runs are kept is for the study to say.
    """
    found = dict(space)
    if is_trainer:
        if _RUN in space:
            raise ConfigError(
                f"param_space has run_config={shown(space[_RUN])}: a run of a trial is kept in the"
                " folder of the trial, and all else is said once for all of them",
                hint="Tuner(trainer, run_config=…) for the study, or the trainer's own run_config",
            )
        scaling = space.get(_SCALING)
        if isinstance(scaling, ScalingConfig) and searched_fields(scaling):
            found[_SCALING] = {
                field.name: value
                for field in dataclasses.fields(scaling)
                if (value := getattr(scaling, field.name)) != field.default
            }
    _must_be_drawn(found, ())
    return found


def _must_be_drawn(value: Any, steps: tuple[Any, ...]) -> None:
    """Raise if there are domains inside a `ScalingConfig`, where no search looks for them."""
    if isinstance(value, ScalingConfig) and searched_fields(value):
        raise ConfigError(
            f"param_space has {shown(value)} at {name_of(steps)}: fields of a ScalingConfig are"
            " drawn only for a trainer, as param_space['scaling_config']",
            hint="search for the numbers, and make the ScalingConfig of them in the trainable",
        )
    if isinstance(value, Categorical):
        value = value.categories
    if isinstance(value, Mapping):
        for key, below in value.items():
            _must_be_drawn(below, (*steps, key))
    elif isinstance(value, list | tuple):
        for place, below in enumerate(value):
            _must_be_drawn(below, (*steps, place))

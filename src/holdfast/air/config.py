"""The configs by their path in Ray AIR."""

from __future__ import annotations

import functools
from typing import Any

from holdfast import train
from holdfast.train import CheckpointConfig, FailureConfig, ScalingConfig

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig"]


class RunConfig(train.RunConfig):
    """`holdfast.train.RunConfig` with `resume="auto"` as the default, also for a study."""

    @functools.wraps(train.RunConfig.__init__)  # type: ignore[misc]  # the same arguments
    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **{**named, "resume": named.get("resume") or "auto"})

"""The names of Ray AIR, most of them those of `holdfast.train`.

`from ray.air import session` in older scripts becomes `from holdfast.air import session`.
"""

from holdfast.air import session
from holdfast.air.config import RunConfig
from holdfast.checkpoint import Checkpoint
from holdfast.train import (
    CheckpointConfig,
    FailureConfig,
    Result,
    ScalingConfig,
    SyncConfig,
)

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "FailureConfig",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "SyncConfig",
    "session",
]

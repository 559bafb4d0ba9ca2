"""The names of the AIR era; what they stand for is in `holdfast.train`, and little else is here.

`from ray.air import session` of scripts of that time is `from holdfast.air import session`.
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

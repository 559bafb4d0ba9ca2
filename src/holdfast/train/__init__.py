"""Training runs: a function on several workers, brought through whatever dies."""

from holdfast.checkpoint import Checkpoint
from holdfast.train import collective
from holdfast.train.config import (
    CheckpointConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    SyncConfig,
)
from holdfast.train.errors import (
    ControllerError,
    PreemptionError,
    TrainingFailedError,
    WorkerGroupError,
)
from holdfast.train.functions import TrainContext, get_checkpoint, get_context, report
from holdfast.train.result import Result
from holdfast.train.trainer import DataParallelTrainer

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "ControllerError",
    "DataParallelTrainer",
    "FailureConfig",
    "LoggingConfig",
    "PreemptionError",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "SyncConfig",
    "TrainContext",
    "TrainingFailedError",
    "WorkerGroupError",
    "collective",
    "get_checkpoint",
    "get_context",
    "report",
]

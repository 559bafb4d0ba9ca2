"""Training runs: a function on several workers, brought through whatever dies."""

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.checkpoint import Checkpoint
from holdfast.data.config import DataConfig
from holdfast.train import collective
from holdfast.train.backend import BackendConfig
from holdfast.train.callbacks import TrainRunContext, UserCallback
from holdfast.train.config import (
    CheckpointConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    SyncConfig,
)
from holdfast.train.context import TrainContext
from holdfast.train.errors import (
    ControllerError,
    Interrupted,
    PreemptionError,
    TrainingFailedError,
    WorkerGroupError,
)
from holdfast.train.functions import (
    get_all_reported_checkpoints,
    get_checkpoint,
    get_context,
    get_dataset_shard,
    get_preemption_info,
    report,
    should_checkpoint,
)
from holdfast.train.reported import (
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    PreemptionInfo,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    ValidationConfig,
    ValidationFn,
    ValidationTaskConfig,
)
from holdfast.train.result import Result
from holdfast.train.trainer import BaseTrainer, DataParallelTrainer

__all__ = [
    "BackendConfig",
    "BaseTrainer",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointConsistencyMode",
    "CheckpointUploadMode",
    "ControllerError",
    "DataConfig",
    "DataParallelTrainer",
    "FailureConfig",
    "Interrupted",
    "LoggingConfig",
    "PreemptionError",
    "PreemptionInfo",
    "ReportedCheckpoint",
    "ReportedCheckpointStatus",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "SyncConfig",
    "TrainContext",
    "TrainRunContext",
    "TrainingFailedError",
    "UserCallback",
    "ValidationConfig",
    "ValidationFn",
    "ValidationTaskConfig",
    "WorkerGroupError",
    "collective",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "get_preemption_info",
    "report",
    "should_checkpoint",
]


if not TYPE_CHECKING:  # hidden from type checkers, which would take any name for a good one

    def __getattr__(name: str) -> object:
        if name == "torch":  # loaded when it is first used, as `holdfast.train` itself is
            return import_module("holdfast.train.torch")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

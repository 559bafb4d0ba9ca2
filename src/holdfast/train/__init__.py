"""Fault-tolerant training runs: one function on several workers.

Names are loaded when first used: workers need only what a training function calls.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.api.config import CheckpointConfig as CheckpointConfig
    from holdfast.api.config import FailureConfig as FailureConfig
    from holdfast.api.config import LoggingConfig as LoggingConfig
    from holdfast.api.config import RunConfig as RunConfig
    from holdfast.api.config import ScalingConfig as ScalingConfig
    from holdfast.api.config import SyncConfig as SyncConfig
    from holdfast.checkpoint import Checkpoint as Checkpoint
    from holdfast.control.host.preemption import Notice as Notice
    from holdfast.data.config import DataConfig as DataConfig
    from holdfast.train import collective as collective
    from holdfast.train.backend import BackendConfig as BackendConfig
    from holdfast.train.callbacks import TrainRunContext as TrainRunContext
    from holdfast.train.callbacks import UserCallback as UserCallback
    from holdfast.train.context import TrainContext as TrainContext
    from holdfast.train.errors import ControllerError as ControllerError
    from holdfast.train.errors import Interrupted as Interrupted
    from holdfast.train.errors import PreemptionError as PreemptionError
    from holdfast.train.errors import RayTrainError as RayTrainError
    from holdfast.train.errors import TrainingFailedError as TrainingFailedError
    from holdfast.train.errors import WorkerGroupError as WorkerGroupError
    from holdfast.train.functions import (
        get_all_reported_checkpoints as get_all_reported_checkpoints,
    )
    from holdfast.train.functions import get_checkpoint as get_checkpoint
    from holdfast.train.functions import get_context as get_context
    from holdfast.train.functions import get_dataset_shard as get_dataset_shard
    from holdfast.train.functions import get_preemption_info as get_preemption_info
    from holdfast.train.functions import report as report
    from holdfast.train.functions import should_checkpoint as should_checkpoint
    from holdfast.train.reported import CheckpointConsistencyMode as CheckpointConsistencyMode
    from holdfast.train.reported import CheckpointUploadMode as CheckpointUploadMode
    from holdfast.train.reported import PreemptionInfo as PreemptionInfo
    from holdfast.train.reported import ReportedCheckpoint as ReportedCheckpoint
    from holdfast.train.reported import ReportedCheckpointStatus as ReportedCheckpointStatus
    from holdfast.train.reported import ValidationConfig as ValidationConfig
    from holdfast.train.reported import ValidationFn as ValidationFn
    from holdfast.train.reported import ValidationTaskConfig as ValidationTaskConfig
    from holdfast.train.result import Result as Result
    from holdfast.train.trainer import BaseTrainer as BaseTrainer
    from holdfast.train.trainer import DataParallelTrainer as DataParallelTrainer
else:
    from holdfast.lazy_exports import lazy_exports

    _NAMES = {
        "holdfast.api.config": (
            "CheckpointConfig FailureConfig LoggingConfig RunConfig ScalingConfig SyncConfig"
        ),
        "holdfast.checkpoint": "Checkpoint",
        "holdfast.control.host.preemption": "Notice",
        "holdfast.data.config": "DataConfig",
        "holdfast.train.backend": "BackendConfig",
        "holdfast.train.callbacks": "TrainRunContext UserCallback",
        "holdfast.train.context": "TrainContext",
        "holdfast.train.errors": (
            "ControllerError Interrupted PreemptionError RayTrainError TrainingFailedError "
            "WorkerGroupError"
        ),
        "holdfast.train.functions": (
            "get_all_reported_checkpoints get_checkpoint get_context get_dataset_shard "
            "get_preemption_info report should_checkpoint"
        ),
        "holdfast.train.reported": (
            "CheckpointConsistencyMode CheckpointUploadMode PreemptionInfo ReportedCheckpoint "
            "ReportedCheckpointStatus ValidationConfig ValidationFn ValidationTaskConfig"
        ),
        "holdfast.train.result": "Result",
        "holdfast.train.trainer": "BaseTrainer DataParallelTrainer",
    }
    __all__, __getattr__, __dir__ = lazy_exports(__name__, _NAMES)
    __all__ += ["collective"]  # a submodule

"""Former import path of `BaseTrainer` and `TrainingFailedError`."""

from holdfast.train.errors import TrainingFailedError
from holdfast.train.trainer import BaseTrainer

__all__ = ["BaseTrainer", "TrainingFailedError"]

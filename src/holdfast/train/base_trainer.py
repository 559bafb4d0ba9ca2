"""Where `BaseTrainer`, and the error of its `fit`, were found in older releases."""

from holdfast.train.errors import TrainingFailedError
from holdfast.train.trainer import BaseTrainer

__all__ = ["BaseTrainer", "TrainingFailedError"]

"""Former import path of `DataParallelTrainer`."""

from holdfast.train.trainer import DataParallelTrainer

__all__ = ["DataParallelTrainer"]

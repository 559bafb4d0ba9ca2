"""Where `DataParallelTrainer` was found in older releases."""

from holdfast.train.trainer import DataParallelTrainer

__all__ = ["DataParallelTrainer"]

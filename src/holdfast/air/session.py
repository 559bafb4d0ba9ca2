"""The functions of `holdfast.train` by their names in Ray AIR.

Outside a training function, those of `holdfast.train` raise. These warn, once each, and return what
a script without workers expects: a world of one worker, rank 0, and None for everything else.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from holdfast import train, tune
from holdfast.checkpoint import Checkpoint
from holdfast.train import TrainContext
from holdfast.worker.run_storage import RunStorage

__all__ = [
    "get_checkpoint",
    "get_dataset_shard",
    "get_experiment_name",
    "get_local_rank",
    "get_local_world_size",
    "get_metadata",
    "get_node_rank",
    "get_run_id",
    "get_storage",
    "get_trial_dir",
    "get_trial_id",
    "get_trial_name",
    "get_trial_resources",
    "get_world_rank",
    "get_world_size",
    "report",
]

T = TypeVar("T")
U = TypeVar("U")
_warned: set[str] = set()


def report(
    metrics: Mapping[str, Any],
    *,
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
) -> None:
    """Report metrics and, optionally, a checkpoint; see `holdfast.train.report`."""
    if _context("report") is not None:
        train.report(metrics, checkpoint=checkpoint, checkpoint_dir_name=checkpoint_dir_name)


def get_checkpoint() -> Checkpoint | None:
    """Return the newest checkpoint of the run, None if there is none yet."""
    return train.get_checkpoint() if _context("get_checkpoint") is not None else None


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """Return this rank's part of a dataset."""
    if _context("get_dataset_shard") is None:
        return None
    return train.get_dataset_shard(dataset_name)


def get_metadata() -> Mapping[str, Any] | None:
    """Return the trainer's `metadata`."""
    return _from_context(TrainContext.get_metadata, None)


def get_experiment_name() -> str | None:
    """Return the name of the run."""
    return _from_context(TrainContext.get_experiment_name, None)


def get_trial_name() -> str | None:
    """Return the name of the trial, or of the run."""
    return _from_context(TrainContext.get_trial_name, None)


def get_trial_id() -> str | None:
    """Return the id of the trial, or of the run if this is no trial."""
    return _from_context(TrainContext.get_trial_id, None)


def get_run_id() -> str | None:
    """Return the run's permanent id."""
    return _from_context(TrainContext.get_run_id, None)


def get_trial_resources() -> Any:
    """Return what a trial has reserved, None for a training run."""
    context = _context("get_trial_resources")
    return None if context is None else tune.get_context().get_trial_resources()


def get_trial_dir() -> str | None:
    """Return where the trial, or the run, is stored."""
    return _from_context(TrainContext.get_trial_dir, None)


def get_world_size() -> int:
    """Return how many workers there are."""
    return _from_context(TrainContext.get_world_size, 1)


def get_world_rank() -> int:
    """Return this worker's rank among all workers."""
    return _from_context(TrainContext.get_world_rank, 0)


def get_local_rank() -> int:
    """Return this worker's rank among those of its node."""
    return _from_context(TrainContext.get_local_rank, 0)


def get_local_world_size() -> int:
    """Return how many workers this node has; 0 outside a training function."""
    return _from_context(TrainContext.get_local_world_size, 0)


def get_node_rank() -> int:
    """Return the rank of this node among all nodes."""
    return _from_context(TrainContext.get_node_rank, 0)


def get_storage() -> RunStorage | None:
    """Return where the run is stored."""
    return _from_context(TrainContext.get_storage, None)


def _from_context(method: Callable[[TrainContext], T], otherwise: U) -> T | U:
    """Return the result of a method of this worker's context; `otherwise` outside a worker."""
    context = _context(method.__name__, depth=4)
    return otherwise if context is None else method(context)


def _context(name: str, *, depth: int = 3) -> TrainContext | None:
    """Return this worker's context; outside a worker, warn the first time and return None."""
    try:
        return train.get_context()
    except RuntimeError:
        if name not in _warned:
            _warned.add(name)
            warnings.warn(
                f"session.{name}() has no effect here: it works only in a training function that a"
                " trainer runs",
                RuntimeWarning,
                stacklevel=depth,
            )
        return None

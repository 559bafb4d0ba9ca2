"""What a training function calls while it runs: report, get_checkpoint, get_context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.worker.context import WorkerContext, current


def report(
    metrics: Mapping[str, Any],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
) -> None:
    """Report metrics and, perhaps, a checkpoint.

    Metrics alone wait for nobody. With a checkpoint, this returns once it is durable: from then on
    it is the one offered after any crash of anything. Every rank reports equally often; what each
    saves becomes one folder.

    Args:
        metrics: Names and numbers.
        checkpoint: The folder to keep; yours again when this returns.
        checkpoint_dir_name: The name of the checkpoint's folder, if it is not to be numbered.
    """
    _inside("report").report(metrics, checkpoint, checkpoint_dir_name)


def get_checkpoint() -> Checkpoint | None:
    """Return the newest checkpoint of the run, None if there is none yet."""
    return _inside("get_checkpoint").checkpoint


def get_context() -> TrainContext:
    """Return where this worker stands in its group."""
    return TrainContext(_inside("get_context"))


class TrainContext:
    """Where a worker stands in its group."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context

    def get_experiment_name(self) -> str:
        """Return the name of the run."""
        return self._context.job.run_name

    def get_world_size(self) -> int:
        """Return how many workers there are."""
        return self._context.place.world_size

    def get_world_rank(self) -> int:
        """Return this worker's place among all."""
        return self._context.place.rank

    def get_local_rank(self) -> int:
        """Return this worker's place among those of its node."""
        return self._context.place.local_rank

    def get_local_world_size(self) -> int:
        """Return how many workers this node has."""
        return self._context.place.local_world_size

    def get_node_rank(self) -> int:
        """Return the place of this node among all."""
        return self._context.place.node_rank


def _inside(name: str) -> WorkerContext:
    context = current()
    if context is None:
        raise RuntimeError(
            f"holdfast.train.{name}() works only inside a training function that a trainer runs"
        )
    return context

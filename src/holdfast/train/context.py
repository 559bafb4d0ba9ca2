"""Where a worker stands: what `get_context` returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.api.deprecated import warn_deprecated
from holdfast.storage.base import Store
from holdfast.worker.context import WorkerContext


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

    def get_attempt(self) -> int:
        """Return the number of this try; the first is 1, and none comes twice in a run's life."""
        return self._context.job.attempt

    def get_run_id(self) -> str:
        """Return what identifies the run for good, wherever its folder is moved."""
        return self._context.job.run_id

    def get_storage(self) -> Store:
        """Return the store that the run is kept in; `url` says where it is."""
        return self._context.store

    # ------------------------------------------------------------------ of older eras

    def get_metadata(self) -> Mapping[str, Any]:
        """Return the trainer's `metadata`."""
        _warn("get_metadata", "pass it inside train_loop_config")
        return self._context.job.metadata

    def get_trial_name(self) -> str:
        """Return the name of the run."""
        _warn("get_trial_name", "use get_experiment_name")
        return self._context.job.run_name

    def get_trial_id(self) -> str:
        """Return what identifies the run for good."""
        _warn("get_trial_id", "use get_experiment_name")
        return self._context.job.run_id

    def get_trial_resources(self) -> None:
        """Return None: a training run is not a trial."""
        _warn("get_trial_resources", "the trainer's scaling_config says what workers have")

    def get_trial_dir(self) -> str:
        """Return where the run is kept."""
        _warn("get_trial_dir", "use get_storage().url")
        return self._context.store.url


def _warn(name: str, advice: str) -> None:
    warn_deprecated(f"{name} is deprecated: {advice}")

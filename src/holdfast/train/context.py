"""`TrainContext`, which `get_context` returns: the run, and this worker's place in its group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.api.deprecated import warn_deprecated
from holdfast.worker.context import WorkerContext
from holdfast.worker.run_storage import RunStorage


class TrainContext:
    """The run, and the worker's place in its group."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context

    def get_experiment_name(self) -> str:
        """Return the name of the run."""
        return self._context.job.run_name

    def get_world_size(self) -> int:
        """Return how many workers there are."""
        return self._context.place.world_size

    def get_world_rank(self) -> int:
        """Return this worker's rank among all workers."""
        return self._context.place.rank

    def get_local_rank(self) -> int:
        """Return this worker's rank among those of its node."""
        return self._context.place.local_rank

    def get_local_world_size(self) -> int:
        """Return how many workers this node has."""
        return self._context.place.local_world_size

    def get_node_rank(self) -> int:
        """Return the rank of this node among all nodes."""
        return self._context.place.node_rank

    def get_attempt(self) -> int:
        """Return the number of this attempt: from 1, and never reused within a run."""
        return self._context.job.attempt

    def get_run_id(self) -> str:
        """Return the run's permanent id, which stays the same if its folder is moved."""
        return self._context.job.run_id

    def get_storage(self) -> RunStorage:
        """Return where the run is stored; `build_checkpoint_path_from_name` is a path in it."""
        return RunStorage(self._context.store)

    # ------------------------------------------------------------------ deprecated

    def get_metadata(self) -> Mapping[str, Any]:
        """Return the trainer's `metadata`, {} in a trial of a study."""
        _warn("get_metadata", "pass it inside train_loop_config")
        return self._context.job.metadata

    def get_trial_name(self) -> str:
        """Return the name of the trial, or of the run if this is no trial."""
        self._warn_of("get_trial_name", "use get_experiment_name")
        job = self._context.job
        return job.run_name if job.trial is None else job.trial.name

    def get_trial_id(self) -> str:
        """Return the id of the trial, or of the run if this is no trial."""
        self._warn_of("get_trial_id", "use get_experiment_name")
        job = self._context.job
        return job.run_id if job.trial is None else job.trial.trial_id

    def get_trial_resources(self) -> Any:
        """Return what a trial has reserved, one mapping per process; None if this is no trial."""
        self._warn_of("get_trial_resources", "the trainer's scaling_config says what workers have")
        trial = self._context.job.trial
        return None if trial is None else trial.resources

    def get_trial_dir(self) -> str:
        """Return where the trial, or the run, is stored."""
        self._warn_of("get_trial_dir", "use get_storage().url")
        return self._context.store.url

    @property
    def _is_trial(self) -> bool:
        return self._context.job.trial is not None

    def _warn_of(self, name: str, advice: str) -> None:
        _warn(name, f"use tune.get_context().{name}()" if self._is_trial else advice)


def _warn(name: str, advice: str) -> None:
    warn_deprecated(f"{name} is deprecated: {advice}")

"""Functions that a trial calls while it runs: `report`, `get_checkpoint`, `get_context`."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from holdfast.api.deprecated import warn_deprecated
from holdfast.checkpoint import Checkpoint
from holdfast.worker.context import WorkerContext, current
from holdfast.worker.job import TrialJob
from holdfast.worker.reporting import Save

log = logging.getLogger(__name__)


def report(
    metrics: Mapping[str, Any] | None = None, *, checkpoint: Checkpoint | None = None, **older: Any
) -> None:
    """Report the metrics of a step and, optionally, a checkpoint.

    On return the checkpoint is durable, and its folder may be reused. If the trial is to stop, this
    raises the exception that ends it; do not catch that.
    """
    context = current()
    if context is None:
        log.warning("tune.report() outside a trial does nothing")
        return
    if older:  # as before Ray 2.0
        warn_deprecated("tune.report(loss=…): write tune.report({'loss': …})")
        metrics = {**(metrics or {}), **older}
    with _pending_checkpoint(context) if context.pending_save else nullcontext() as pending:
        checkpoint = pending if checkpoint is None else checkpoint
        save = None if checkpoint is None else Save(checkpoint=checkpoint)
        context.reporter.report(metrics, save)  # type: ignore[arg-type]  # None is refused there


@contextmanager
def checkpoint_dir(step: int | None = None) -> Iterator[str]:
    """Yield a folder for the files of a checkpoint that the next `report` saves; deprecated."""
    del step
    warn_deprecated("tune.checkpoint_dir(step): write tune.report(metrics, checkpoint=…)")
    folder = tempfile.TemporaryDirectory(prefix="holdfast-checkpoint-")
    yield folder.name
    if (context := current()) is not None:
        context.pending_save = folder


@contextmanager
def _pending_checkpoint(context: WorkerContext) -> Iterator[Checkpoint]:
    """Yield the checkpoint that this trial left in a `checkpoint_dir` since its last report."""
    folder, context.pending_save = context.pending_save, None
    assert folder is not None
    with folder:
        yield Checkpoint.from_directory(folder.name)


def get_checkpoint() -> Checkpoint | None:
    """Return the newest checkpoint of the trial, None if there is none yet."""
    context = current()
    return None if context is None else context.checkpoint


def get_context() -> TuneContext:
    """Return the trial, study and ranks of this process."""
    return TuneContext(current())


class TuneContext:
    """The trial of this process and its study; outside a trial, everything is None."""

    def __init__(self, context: WorkerContext | None) -> None:
        self._context = context

    @property
    def _trial(self) -> TrialJob | None:
        return None if self._context is None else self._context.job.trial

    def get_experiment_name(self) -> str | None:
        return None if self._context is None else self._context.job.run_name

    def get_trial_id(self) -> str | None:
        return None if self._trial is None else self._trial.trial_id

    def get_trial_name(self) -> str | None:
        return None if self._trial is None else self._trial.name

    def get_trial_resources(self) -> Any:
        """Return the resources that the trial has reserved."""
        from holdfast.tune.resources import PlacementGroupFactory

        trial = self._trial
        return None if trial is None else PlacementGroupFactory(list(trial.resources))

    def get_trial_dir(self) -> str | None:
        """Return the trial's folder on storage."""
        return None if self._context is None else self._context.store.url

    def get_storage(self) -> Any:
        """Return the storage that the trial's files are on."""
        from holdfast.worker.run_storage import RunStorage

        return None if self._context is None else RunStorage(self._context.store)

    def get_world_size(self) -> int | None:
        """Return how many processes run the function: 1, unless it is a trainer's."""
        return None if self._context is None else self._context.place.world_size

    def get_world_rank(self) -> int | None:
        return None if self._context is None else self._context.place.rank

    def get_local_rank(self) -> int | None:
        return None if self._context is None else self._context.place.local_rank

    def get_local_world_size(self) -> int | None:
        return None if self._context is None else self._context.place.local_world_size

    def get_node_rank(self) -> int | None:
        return None if self._context is None else self._context.place.node_rank

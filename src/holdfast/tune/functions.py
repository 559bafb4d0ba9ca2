"""What a trial calls while it runs."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from holdfast.api.deprecated import warn_deprecated
from holdfast.checkpoint import Checkpoint
from holdfast.worker.context import WorkerContext, current
from holdfast.worker.reporting import Save

log = logging.getLogger(__name__)


def report(
    metrics: Mapping[str, Any] | None = None, *, checkpoint: Checkpoint | None = None, **older: Any
) -> None:
    """Report the metrics of a step and, perhaps, a checkpoint.

    With a checkpoint, it is durable on return, and the folder is yours again. If the trial is to go
    no further, this does not return: it raises what ends the trial, and must be let pass.
    """
    context = current()
    if context is None:
        log.warning("tune.report() outside a trial does nothing")
        return
    if older:  # as before 2.0
        warn_deprecated("tune.report(loss=…): write tune.report({'loss': …})")
        metrics = {**(metrics or {}), **older}
    with _made_before(context) if _made else nullcontext() as made:
        checkpoint = made if checkpoint is None else checkpoint
        save = None if checkpoint is None else Save(checkpoint=checkpoint)
        context.reporter.report(metrics, save)  # type: ignore[arg-type]  # None is refused there


@contextmanager
def checkpoint_dir(step: int | None = None) -> Iterator[str]:
    """Give a folder for the files of a checkpoint, which the next `report` saves; as before 2.0."""
    del step
    warn_deprecated("tune.checkpoint_dir(step): write tune.report(metrics, checkpoint=…)")
    folder = tempfile.TemporaryDirectory(prefix="holdfast-checkpoint-")
    yield folder.name
    _made[:] = [(current(), folder)]


_made: list[tuple[WorkerContext | None, tempfile.TemporaryDirectory[str]]] = []


@contextmanager
def _made_before(context: WorkerContext) -> Iterator[Checkpoint | None]:
    """Give what this trial has put into a `checkpoint_dir` since its last report."""
    found = [folder for maker, folder in _made if maker is context]
    _made.clear()
    try:
        yield Checkpoint.from_directory(found[0].name) if found else None
    finally:
        for folder in found:
            folder.cleanup()


def get_checkpoint() -> Checkpoint | None:
    """Return the newest checkpoint of the trial, None if there is none yet."""
    context = current()
    return None if context is None else context.checkpoint


def get_context() -> TuneContext:
    """Return where this process stands in its study."""
    return TuneContext(current())


class TuneContext:
    """A trial and its study, for the trial; outside one, everything is None."""

    def __init__(self, context: WorkerContext | None) -> None:
        self._context = context

    def _told(self, name: str) -> Any:
        return None if self._context is None else self._context.job.metadata.get(name)

    def get_experiment_name(self) -> str | None:
        return None if self._context is None else self._context.job.run_name

    def get_trial_id(self) -> str | None:
        found: str | None = self._told("trial_id")
        return found

    def get_trial_name(self) -> str | None:
        found: str | None = self._told("trial_name")
        return found

    def get_trial_resources(self) -> Any:
        """Return what the trial has reserved."""
        from holdfast.tune.resources import PlacementGroupFactory

        found = self._told("resources")
        return None if found is None else PlacementGroupFactory(found)

    def get_trial_dir(self) -> str | None:
        """Return where the trial's files are on storage."""
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

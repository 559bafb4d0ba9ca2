"""What a trial calls while it runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.worker.context import WorkerContext, current
from holdfast.worker.reporting import Save

log = logging.getLogger(__name__)


def report(metrics: Mapping[str, Any], *, checkpoint: Checkpoint | None = None) -> None:
    """Report the metrics of a step and, perhaps, a checkpoint.

    With a checkpoint, it is durable on return, and the folder is yours again. If the trial is to go
    no further, this does not return: it raises what ends the trial, and must be let pass.
    """
    context = current()
    if context is None:
        log.warning("tune.report() outside a trial does nothing")
        return
    save = None if checkpoint is None else Save(checkpoint=checkpoint)
    context.reporter.report(metrics, save)


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
        return None if self._context is None else self._context.store

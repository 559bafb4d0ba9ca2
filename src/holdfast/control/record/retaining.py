"""Deletes the checkpoints of a run that its policy does not keep, and tells what it cannot rank."""

from __future__ import annotations

import logging

from holdfast.control.record.open_run import OpenRun
from holdfast.core.checkpoint.retention import Retention, unscored
from holdfast.errors import LeaseLost, StoreError

log = logging.getLogger(__name__)


class Retaining:
    """What is done about the checkpoints that are there whenever one was added."""

    def __init__(self, run: OpenRun, policy: Retention) -> None:
        self._run, self._policy = run, policy
        self._said: str | None = None

    def __call__(self) -> None:
        """Delete what is not to be kept; what cannot be deleted now is left to the next sweep."""
        said = unscored(self._policy, self._run.record.candidates())
        if said is not None and said != self._said:
            self._said = said
            log.warning(said)
        try:
            self._run.retain(self._policy)
        except LeaseLost:
            raise
        except StoreError as error:
            log.warning("an old checkpoint could not be removed, the next sweep will: %s", error)

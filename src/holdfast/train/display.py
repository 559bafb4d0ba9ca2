"""What people see of a run while it goes on: what workers print, and why they were lost."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from holdfast.control.host.worker_output import Echo
from holdfast.control.observers import Observer
from holdfast.control.run.plan import Plan
from holdfast.core.not_finite import NotFinite, in_words
from holdfast.core.outcomes import WorkerExit

log = logging.getLogger(__name__)


class LossWatch(Observer):
    """Warns once of a metric that is not finite; training goes on."""

    def __init__(self, score: str | None = None) -> None:
        self._not_finite = NotFinite([score])

    def rank_reported(self, rank: int, step: int, metrics: Mapping[str, Any]) -> None:
        if news := self._not_finite.news(metrics):
            log.warning(
                "%s in report %d of rank %d; training goes on, and this is said once for a metric",
                in_words(news), step, rank,
            )  # fmt: skip


class Display(Observer):
    """Shows a run on stderr, as far as the level of its `LoggingConfig` allows."""

    def __init__(self, plan: Plan, level: str, stream: TextIO | None = None) -> None:
        self._plan, self._stream = plan, stream or sys.stderr
        number = logging.getLevelNamesMapping()[level]
        self._shows_cards = number <= logging.WARNING
        self._echo = Echo(self._stream) if number <= logging.INFO else None

    def group_started(self, attempt: int, world_size: int, step: int | None) -> None:
        if self._echo is not None:
            logs = {rank: self._plan.log_path(attempt, rank) for rank in range(world_size)}
            self._echo.watch(attempt, logs)

    def group_lost(
        self,
        attempt: int,
        exits: Sequence[WorkerExit],
        errors: Mapping[int, bytes | None],
        card: str,
        *,
        is_last: bool,
    ) -> None:
        if self._shows_cards and not is_last:  # the last one is in the error that is raised
            print(card, file=self._stream, flush=True)  # it is what people see

    def close(self) -> None:
        """Show the rest of what workers have printed."""
        if self._echo is not None:
            self._echo.stop()

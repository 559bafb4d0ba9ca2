"""Output of a run on stderr: what workers print, why they were lost, and what a launch does."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from holdfast.control.host.worker_output import Echo
from holdfast.control.observers import Observer
from holdfast.core.not_finite import NotFinite, in_words
from holdfast.core.run.outcomes import WorkerExit
from holdfast.engine.base import Engine

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

    def __init__(self, engine: Engine, level: str, stream: TextIO | None = None) -> None:
        self._engine, self._stream = engine, stream or sys.stderr
        number = logging.getLevelNamesMapping()[level]
        self._shows_cards = number <= logging.WARNING
        self._echo = Echo(self._stream) if number <= logging.INFO else None

    def group_started(self, attempt: int, world_size: int, step: int | None) -> None:
        if self._echo is not None:
            logs = {rank: self._engine.log(attempt, rank) for rank in range(world_size)}
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


def announce(text: str, log_level: str = "INFO") -> None:
    """Say one line on stderr, unless the user's level is above INFO.

    Works in notebooks, where `sys.stderr` is the cell's, and without any stderr at all.
    """
    if logging.getLevelNamesMapping()[log_level] > logging.INFO:
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody can read it
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def speaking(level: str) -> Iterator[None]:
    """Have nothing logged below `level`, if that is above warnings; else as `logging` is set."""
    logger, number = logging.getLogger("holdfast"), logging.getLevelNamesMapping()[level]
    before = logger.level
    if number > logging.WARNING:
        logger.setLevel(number)
    try:
        yield
    finally:
        logger.setLevel(before)

"""Prints a run on stderr: the output of workers, failure cards, and lines on starts and ends."""

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


class NotFiniteWatch(Observer):
    """Warns once for each metric that becomes NaN or infinite; training goes on."""

    def __init__(self, score: str | None = None) -> None:
        self._not_finite = NotFinite([score])

    def rank_reported(self, rank: int, step: int, metrics: Mapping[str, Any]) -> None:
        if news := self._not_finite.news(metrics):
            log.warning(
                "%s in report %d of rank %d; training goes on, warned once per metric",
                in_words(news), step, rank,
            )  # fmt: skip


class Display(Observer):
    """Prints worker output and failure cards, as far as the log level allows."""

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
        if self._shows_cards and not is_last:  # the raised error holds the last one
            print(card, file=self._stream, flush=True)

    def close(self) -> None:
        """Print the rest of the workers' output."""
        if self._echo is not None:
            self._echo.stop()


def announce(text: str, log_level: str = "INFO") -> None:
    """Print one line on stderr, unless the user's level is above INFO.

    Works in notebooks, where `sys.stderr` is the cell's, and without stderr.
    """
    if logging.getLevelNamesMapping()[log_level] > logging.INFO:
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr is closed or missing
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def at_log_level(level: str) -> Iterator[None]:
    """Silence Holdfast's loggers below `level`, if that is above WARNING, for a while."""
    logger, number = logging.getLogger("holdfast"), logging.getLevelNamesMapping()[level]
    before = logger.level
    if number > logging.WARNING:
        logger.setLevel(number)
    try:
        yield
    finally:
        logger.setLevel(before)

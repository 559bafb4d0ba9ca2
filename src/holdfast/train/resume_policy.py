"""The one line that says whether a run begins or carries on, and from where.

A run that carries on although its user meant to begin a new one is the costliest surprise there is,
so the line is said aloud, on stderr, and not left to how logging happens to be set up.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.core.checkpoint.record import RunRecord
from holdfast.core.run.machine import Ending, Over, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What there is of a run when it is opened.

    Attributes:
        starts: How often its training function was started before; 0 for a new run.
        ending: How it came out the last time, None if it was cut off.
        checkpoint: The folder it carries on from, None if it has no checkpoint.
        step: Which report that was, None if nobody knows.
        saved: When, in seconds since 1970.
    """

    starts: int = 0
    ending: Ending | None = None
    checkpoint: str | None = None
    step: int | None = None
    saved: float = 0.0


_ENDINGS = {
    Ending.SUCCEEDED: "had finished",
    Ending.FAILED: "had failed",
    Ending.STOPPED: "was stopped",
    Ending.PREEMPTED: "was preempted",
}


def standing_of(record: RunRecord, run: Run) -> Standing:
    """Return what a run's record and history amount to for the one who launches it."""
    newest = next(iter(record.usable()), None)
    return Standing(
        starts=run.attempts,
        ending=run.phase.ending if isinstance(run.phase, Over) else None,
        checkpoint=newest.directory if newest else None,
        step=newest.step if newest else None,
        saved=newest.created if newest else 0.0,
    )


def opening_line(name: str, url: str, standing: Standing, *, policy: str, now: float) -> str:
    """Return the line that says what a launch of run `name` is about to do."""
    if standing.starts == 0 and standing.checkpoint is None:
        return f"holdfast: run {name!r} is new; it is kept at {url}"
    how = "was interrupted" if standing.ending is None else _ENDINGS[standing.ending]
    if standing.checkpoint is None:
        does = "begins again, because it has no checkpoint"
    else:
        step = "" if standing.step is None else f"step {standing.step}, "
        saved = f"{step}saved {_age(now - standing.saved)} ago"
        does = f"carries on from {standing.checkpoint} ({saved})"
    times = "once" if standing.starts == 1 else f"{standing.starts} times"
    return (
        f"holdfast: run {name!r}, which {how}, {does};"
        f" started {times} before [RunConfig(resume={policy!r})]"
    )


def closing_line(name: str, ending: Ending, checkpoint: str | None) -> str:
    """Return the line that says how to carry on with a run that ended before it was done."""
    does = f"carries on from {checkpoint}" if checkpoint else "begins again: nothing was saved"
    return f"holdfast: run {name!r} {_ENDINGS[ending]}; the same command {does}"


def announce(text: str, log_level: str = "INFO") -> None:
    """Say one line on stderr, unless the user's level is above INFO.

    Works in notebooks, where `sys.stderr` is the cell's, and without any stderr at all.
    """
    if logging.getLevelNamesMapping()[log_level] > logging.INFO:
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):  # there is nobody to read it
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _age(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


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

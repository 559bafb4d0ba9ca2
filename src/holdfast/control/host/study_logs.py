"""Limits the disk space that the logs of a study's trials take.

Only the logs of running trials are measured again and again; that of an ended trial is measured
once. The oldest logs are removed first, those of failed trials last; if the running ones alone are
too large, they lose their middle. Logs from before this driver are not counted.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable

from holdfast.clock import Clock
from holdfast.control.host.log_quota import HEAD_BYTES_MAX, LOOK_EVERY_S, bytes_allowed
from holdfast.control.study.plan import StudyObserver
from holdfast.core.study.trial import Status, Trial
from holdfast.engine.log_files import cut_middle, used_bytes

log = logging.getLogger(__name__)


class StudyLogs(StudyObserver):
    """Removes and cuts logs of trials; errors are ignored.

    Args:
        log_of: Returns the log file of an attempt of a trial.
    """

    def __init__(self, log_of: Callable[[Trial, int], str], clock: Clock) -> None:
        self._log_of, self._clock = log_of, clock
        self._bytes_max = bytes_allowed()
        self._running: dict[str, str] = {}  # the log of each trial that runs, by its id
        self._ended: dict[str, int] = {}  # sizes of logs, oldest first
        self._failed: dict[str, int] = {}  # the same for trials that failed
        self._looks_at = 0.0
        self._has_warned = False

    def trial_started(self, trial: Trial, after_step: int) -> None:
        self._running[trial.trial_id] = self._log_of(trial, trial.run.attempts)

    def trial_paused(self, trial: Trial) -> None:
        self._note_end(trial)

    def trial_lost(self, trial: Trial, card: str, *, is_last: bool) -> None:
        self._note_end(trial)

    def trial_ended(self, trial: Trial) -> None:
        self._note_end(trial)

    def _note_end(self, trial: Trial) -> None:
        path = self._running.pop(trial.trial_id, None)
        if path is not None and self._bytes_max is not None:
            sizes = self._failed if trial.status is Status.ERROR else self._ended
            if size := _size(path):
                sizes[path] = size

    def turned(self, *, is_over: bool) -> None:
        if self._bytes_max is None or self._clock.monotonic() < self._looks_at:
            return
        self._looks_at = self._clock.monotonic() + LOOK_EVERY_S
        running = {path: _size(path) for path in self._running.values()}
        surplus = sum((*running.values(), *self._ended.values(), *self._failed.values()))
        surplus -= self._bytes_max
        for sizes in (self._ended, self._failed):
            while surplus > 0 and sizes:
                path = next(iter(sizes))
                surplus -= sizes.pop(path)
                with contextlib.suppress(OSError):
                    os.remove(path)
                self._warn_once()
        if surplus > 0 and running:
            self._cut(running, self._bytes_max // len(running))

    def _cut(self, sizes: dict[str, int], share: int) -> None:
        for path in [path for path, size in sizes.items() if size > share]:
            with contextlib.suppress(OSError):
                if cut_middle(path, min(HEAD_BYTES_MAX, share // 8), share // 2):
                    log.warning("%s has lost its middle: logs take too much room", path)

    def _warn_once(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "the logs of trials that ended first are removed: logs take too much room"
                " (HOLDFAST_LOG_BYTES is the limit)"
            )


def _size(path: str) -> int:
    try:
        return used_bytes(path)
    except OSError:
        return 0

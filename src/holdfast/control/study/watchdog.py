"""Watches the processes of trials for progress, and saves the stacks of one that hangs."""

from __future__ import annotations

import logging
import os

from holdfast.clock import Clock
from holdfast.control.study.trial_process import TrialProcess
from holdfast.core.run.hang_detection import Learned, Progress
from holdfast.core.run.outcomes import Hung
from holdfast.engine.base import Engine
from holdfast.wire import Leaving, Message, Reported

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
PATIENCE_MIN_S = 0.01


class TrialWatch:
    """Watches each trial, and learns from all its attempts how long a step takes."""

    def __init__(self, timeout_s: float | None, engine: Engine, clock: Clock) -> None:
        self._timeout_s, self._engine, self._clock = timeout_s, engine, clock
        self._learned: dict[str, Learned] = {}
        self._progress: dict[int, Progress] = {}
        self._busy: set[int] = set()
        self._looks_at = float("-inf")

    @property
    def due_in_s(self) -> float:
        """In how many seconds to look again, if nothing happens before."""
        return max(PATIENCE_MIN_S, self._looks_at - self._clock.monotonic())

    def begin(self, launch: int, trial_id: str) -> None:
        """Watch the process of an attempt."""
        learned = self._learned.setdefault(trial_id, Learned())
        self._progress[launch] = Progress([0], self._timeout_s, self._clock.monotonic(), learned)

    def heard(self, launch: int, message: Message) -> None:
        """Take in a message of a process."""
        progress = self._progress.get(launch)
        if progress is None:
            return
        if isinstance(message, Leaving):
            progress.finished(0, self._clock.monotonic())
        elif isinstance(message, Reported) and message.metrics:
            progress.reported(0, self._clock.monotonic())
        else:
            progress.gave_sign(0, self._clock.monotonic())

    def ended(self, launch: int) -> None:
        """Take in that an attempt is over."""
        self._progress.pop(launch, None)
        self._busy.discard(launch)

    def forget(self, trial_id: str) -> None:
        """Take in that a trial is over."""
        self._learned.pop(trial_id, None)

    def look(self, processes: dict[int, TrialProcess]) -> list[int]:
        """Return the launches that hang; their processes get the stacks."""
        now = self._clock.monotonic()
        if now < self._looks_at:
            return []
        hung = [
            launch
            for launch, process in processes.items()
            if process.hung is None and self._is_hung(launch, process, now)
        ]
        due_s = [progress.due_s() for progress in self._progress.values()]
        soonest_s = min(due_s, default=LOOK_EVERY_S)
        self._looks_at = now + min(LOOK_EVERY_S, soonest_s)
        return hung

    def _is_hung(self, launch: int, process: TrialProcess, now: float) -> bool:
        progress = self._progress[launch]
        if process.is_saving and launch not in self._busy:
            self._busy.add(launch)
            progress.busy(0, now)
        elif not process.is_saving and launch in self._busy:
            self._busy.discard(launch)
            progress.not_busy(0, now)
        hang = progress.hung(now)
        if hang is None:
            return False
        stacks = self._engine.stacks(launch).get(0, "")
        process.hung = Hung(0, process.node, hang.idle_s[0], stacks)
        self._write(process, stacks)
        return True

    def _write(self, process: TrialProcess, stacks: str) -> None:
        path = os.path.join(os.path.dirname(process.log), f"stacks-{process.attempt}.txt")
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(stacks + "\n")
        except OSError as error:  # a disk that is full must not hide the hang
            log.warning("the stacks of a trial that hangs could not be written: %s", error)

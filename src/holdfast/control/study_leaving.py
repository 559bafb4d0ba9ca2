"""This driver's machine is about to go: every trial gets the chance to save itself first."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from holdfast.clock import Clock
from holdfast.control.trial_process import TrialProcess
from holdfast.engine.base import Engine
from holdfast.wire import Noticed

log = logging.getLogger(__name__)


class Leaving:
    """Lets trials go one by one, each as soon as it has saved itself, and all at the deadline."""

    def __init__(
        self,
        processes: Mapping[int, TrialProcess],
        engine: Engine,
        clock: Clock,
        notice_s: float,
    ) -> None:
        self._engine, self._clock = engine, clock
        self._deadline = clock.monotonic() + notice_s
        notice = Noticed(clock.now() + notice_s, {})
        for launch, process in processes.items():
            process.is_leaving = True
            engine.send(launch, 0, notice)

    def go_on(self, processes: Mapping[int, TrialProcess]) -> bool:
        """Stop the trials that are safe; return whether nobody is left to wait for."""
        is_late = self._clock.monotonic() >= self._deadline
        for launch, process in list(processes.items()):
            if process.is_safe and not process.is_stopped:
                process.is_stopped = True
                self._engine.stop_group(launch)
        if is_late and processes:
            log.warning("%d trials did not save themselves in time", len(processes))
        return is_late or not processes

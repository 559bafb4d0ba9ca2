"""A clock for hangs: what a busy machine makes slow is not taken for one.

Whoever watches for hangs counts seconds of silence. In a test they pass only once everybody has
come to where the test wants them: a worker that gets no processor for a while is not silent.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from holdfast.clock import SystemClock
from holdfast.control.run import attempt
from holdfast.control.run.watchdog import Watchdog
from holdfast.control.study import controller as study_controller
from holdfast.control.study.watchdog import TrialWatch


class HeldClock(SystemClock):
    """Measures only the time in which `passes` holds."""

    def __init__(self, passes: Callable[[], object]) -> None:
        self._passes, self._measured, self._looked_at = passes, 0.0, time.monotonic()

    def monotonic(self) -> float:
        now = time.monotonic()
        if self._passes():
            self._measured += now - self._looked_at
        self._looked_at = now
        return self._measured


def watch_for_hangs_while(patch: pytest.MonkeyPatch, passes: Callable[[], object]) -> None:
    """Have the runs and studies of this process count silence only while `passes` holds."""
    clock = HeldClock(passes)
    patch.setattr(
        attempt,
        "Watchdog",
        lambda group, learned, plan, engine, _: Watchdog(group, learned, plan, engine, clock),
    )
    patch.setattr(
        study_controller, "TrialWatch", lambda most, engine, _: TrialWatch(most, engine, clock)
    )

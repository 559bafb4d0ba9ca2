"""Time, passed in: nothing that decides or waits reads a clock of its own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records that people and other machines read, and ways to measure and wait."""

    def now(self) -> float:
        """Seconds since 1970; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never jumps, for measuring how long something takes."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()

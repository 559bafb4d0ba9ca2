"""The `Clock` that is passed to whatever decides by time or waits, so that tests control time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for durations, and sleeping."""

    def now(self) -> float:
        """Seconds since 1970; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never jumps, so durations are measured with it."""
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

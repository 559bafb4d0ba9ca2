"""Time as the code under test sees it: that of the stage."""

from __future__ import annotations

from tests.simulation.stage import Stage

BEGINS = 1_700_000_000.0  # when every simulated run begins, seconds since 1970


class SimClock:
    """The clock of all simulated machines."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def now(self) -> float:
        return BEGINS + self._stage.now

    def monotonic(self) -> float:
        return self._stage.now

    def sleep(self, seconds: float) -> None:
        if self._stage.current is not None:
            self._stage.sleep(seconds)

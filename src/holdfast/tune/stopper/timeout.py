"""TimeoutStopper: stops the study when its time is used up."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from typing import Any

from holdfast.api.checks import is_number
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import ConfigError
from holdfast.tune.stopper.stopper import Stopper

log = logging.getLogger(__name__)


class TimeoutStopper(Stopper):
    """Stops the study when it has run for `timeout`, a number of seconds or a `timedelta`.

    Time counts from the first `stop_all`, and only while a driver runs: the state holds the time
    that is left, so the time between two drivers does not count.
    """

    def __init__(self, timeout: float | dt.timedelta, *, clock: Clock = SYSTEM_CLOCK) -> None:
        budget_s = timeout.total_seconds() if isinstance(timeout, dt.timedelta) else timeout
        if not is_number(budget_s) or budget_s < 0:
            raise ConfigError(
                f"TimeoutStopper(timeout={timeout!r}): must be a number of seconds, 0 or more,"
                " or a datetime.timedelta"
            )
        self._budget_s = self._left_s = float(budget_s)
        self._clock = clock
        self._last_checked: float | None = None
        self._has_logged = False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        self._spend(begin=True)
        if self._left_s > 0:
            return False
        if not self._has_logged:
            self._has_logged = True
            log.info("the time budget of %g s is used up; the study stops", self._budget_s)
        return True

    @property
    def remaining_s(self) -> float:
        """How much time is left now."""
        self._spend(begin=False)
        return self._left_s

    def get_state(self) -> dict[str, Any]:
        return {"remaining_s": self.remaining_s}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._left_s = float(state["remaining_s"])
        self._last_checked = None

    def _spend(self, *, begin: bool) -> None:
        if self._last_checked is None and not begin:
            return
        now = self._clock.monotonic()
        if self._last_checked is not None:
            self._left_s = max(0.0, self._left_s - (now - self._last_checked))
        self._last_checked = now

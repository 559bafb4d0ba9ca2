"""Decides how long the rest of a group may go on when it has lost a worker.

Usually not at all. But a checkpoint whose last parts are on their way is worth waiting for. And if
all lost workers raised because another one is gone, that one is about to end by itself: if it was
stopped, its cause of death would be lost, and the workers that missed it would be blamed.
"""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.control.run.group import Group
from holdfast.core.failure.hints import is_aftermath
from holdfast.core.run.outcomes import Finished, Raised

FINISH_SAVE_S = 30.0
# A process that has used much memory ends some time after its connections are closed: the kernel
# frees about 10 GB per second if it has nothing else to do.
CAUSE_S = 5.0


class Grace:
    """The time that is left to a group."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost_at: float | None = None

    def lost(self) -> None:
        """Note that the group has lost a worker; the time of the first loss counts."""
        if self._lost_at is None:
            self._lost_at = self._clock.monotonic()

    def is_over(self, group: Group) -> bool:
        """Whether the rest of the group is to be stopped now."""
        if self._lost_at is None or group.is_over:
            return False
        passed_s = self._clock.monotonic() - self._lost_at
        if passed_s >= FINISH_SAVE_S:
            return True
        if passed_s < CAUSE_S and _is_cause_to_come(group):
            return False
        return not group.is_finishing_a_save()

    def left_s(self) -> float | None:
        """Return how much of `CAUSE_S` is left, None if nothing is lost or that time is over."""
        if self._lost_at is None:
            return None
        left_s = self._lost_at + CAUSE_S - self._clock.monotonic()
        return left_s if left_s > 0 else None


def _is_cause_to_come(group: Group) -> bool:
    """Whether all lost workers so far raised because another one is gone."""
    lost = [ended for ended in group.exits.values() if not isinstance(ended, Finished)]
    return all(isinstance(ended, Raised) and is_aftermath(ended.error) for ended in lost)

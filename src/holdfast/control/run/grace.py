"""How long the rest of a group may go on when it has lost a worker.

As a rule not at all. But a checkpoint whose last parts are on their way is worth waiting for; and
where only workers were lost that say that another is gone, that other is about to end by itself.
Were it stopped, nobody would know how it died, and who missed it would be taken for the cause.
"""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.control.run.group import Group
from holdfast.core.failure.hints import is_aftermath
from holdfast.core.run.outcomes import Finished, Raised

FINISH_SAVE_S = 30.0
# A process that has used much memory takes its time to die, after its connections are closed: the
# kernel frees some 10 GB in a second, if it has nothing else to do.
CAUSE_S = 5.0


class Grace:
    """The time that is left to a group."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost_at: float | None = None

    def lost(self) -> None:
        """Take in that a worker of the group is lost; the first one counts."""
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
        """Return when the first patience ends, None if nothing is waited for so impatiently."""
        if self._lost_at is None:
            return None
        left_s = self._lost_at + CAUSE_S - self._clock.monotonic()
        return left_s if left_s > 0 else None


def _is_cause_to_come(group: Group) -> bool:
    """Whether all that were lost so far say that it is another one who is gone."""
    lost = [one for one in group.exits.values() if not isinstance(one, Finished)]
    return all(isinstance(one, Raised) and is_aftermath(one.error) for one in lost)

"""What a lost group is blamed on, and how many losses a run absorbs.

Losses are journaled with the run. A budget is for one launch: the death of a driver costs nothing,
and the next launch begins with a full one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.core.run.outcomes import Blame, WorkerExit

STARTS_ALIKE_MAX = 6  # in a second and a half, with the pauses between them
_FAILURES = tuple(kind for kind in Blame if kind.is_failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many losses a run absorbs; None means any number.

    Attributes:
        failures: Losses to code, processes, hangs and nodes together.
        preemptions: Losses to preemption.
        starts: Groups that never came up.
        starts_alike: Failed starts in a row for the same reason after which a run is given up if
            none of its groups ever came up.
    """

    failures: int | None = 0
    preemptions: int | None = None
    starts: int | None = None
    starts_alike: int | None = None

    def allows(self, losses: Mapping[Blame, int], blamed: Blame) -> bool:
        """Whether another attempt may follow a loss that is already counted in `losses`."""
        if blamed.is_failure:
            limit, used = self.failures, failures_in(losses)
        else:
            limit = self.starts if blamed is Blame.START else self.preemptions
            used = losses.get(blamed, 0)
        return limit is None or used <= limit


def failures_in(losses: Mapping[Blame, int]) -> int:
    """Return how many losses count as failures."""
    return sum(losses.get(kind, 0) for kind in _FAILURES)


def blame(exits: Iterable[WorkerExit]) -> Blame:
    """Return the root cause of a lost group.

    When a node or a process goes away, the surviving ranks usually raise too (broken collectives),
    so the most external cause wins. A real bug raises again next time and is charged then.
    """
    causes = [ended.blame for ended in exits if ended.blame is not None]
    if not causes:
        return Blame.PREEMPTION  # we ended it, and the record of why is lost: not a failure
    return max(causes, key=[*Blame].index)

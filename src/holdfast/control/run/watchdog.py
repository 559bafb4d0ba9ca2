"""Watches a group for progress, and saves the stacks of all ranks if it hangs."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from holdfast.clock import Clock
from holdfast.control.run.group import Group
from holdfast.control.run.plan import Plan
from holdfast.core.failure.stacks import first_to_stop
from holdfast.core.run.hang_detection import Learned, Progress
from holdfast.core.run.outcomes import Evicted, Hung, WorkerExit
from holdfast.engine.base import Engine
from holdfast.wire import Leaving, Message, Reported

log = logging.getLogger(__name__)

PATIENCE_MIN_S = 0.01


@dataclass(frozen=True, slots=True)
class Stopped:
    """A group that hangs.

    Attributes:
        first: The rank that stopped first.
        exits: How the ranks that hang count as ended.
        stacks_file: Where the stacks of all ranks are, None if they could not be written.
    """

    first: int
    exits: Mapping[int, Hung]
    stacks_file: str | None

    def as_known(self, ended: WorkerExit) -> WorkerExit:
        """Return how a worker ended; the engine sees only that a hung one was evicted."""
        return self.exits.get(ended.rank, ended) if isinstance(ended, Evicted) else ended


class Watchdog:
    """Watches one group; what it learns is used for the next ones."""

    def __init__(
        self, group: Group, learned: Learned, plan: Plan, engine: Engine, clock: Clock
    ) -> None:
        self._group, self._plan, self._engine, self._clock = group, plan, engine, clock
        self._looks_at = clock.monotonic()
        self._progress = Progress(group.running, plan.hang_timeout_s, self._looks_at, learned)
        self._storing: set[int] = set()

    @property
    def due_in_s(self) -> float:
        """How soon to look, if no message comes before."""
        return max(PATIENCE_MIN_S, self._looks_at - self._clock.monotonic())

    @property
    def is_due(self) -> bool:
        """Whether it is time to look."""
        return self._clock.monotonic() >= self._looks_at

    def heard(self, rank: int, message: Message) -> None:
        """Note a message of a worker."""
        now = self._clock.monotonic()
        if isinstance(message, Reported):
            self._progress.reported(rank, now)
        elif isinstance(message, Leaving):
            self._progress.finished(rank, now)
        else:
            self._progress.gave_sign(rank, now)

    def ended(self, rank: int) -> None:
        """Note that a worker has ended."""
        now = self._clock.monotonic()
        self._progress.finished(rank, now)
        self._looks_at = now + self._progress.due_s()

    def look(self, asking: Collection[int]) -> Stopped | None:
        """Return the hang of the group, None if it goes on.

        `asking` are the ranks that wait for an answer of this driver.
        """
        now, group = self._clock.monotonic(), self._group
        storing = group.storing() | (group.running & set(asking))
        for rank in storing - self._storing:
            self._progress.busy(rank, now)
        for rank in self._storing - storing:
            self._progress.not_busy(rank, now)
        self._storing = storing
        hang = self._progress.hung(now)
        self._looks_at = now + self._progress.due_s()
        if hang is None:
            return None
        self._looks_at = math.inf
        stacks = self._engine.stacks(group.attempt)
        exits = {
            rank: Hung(rank, group.places[rank].node, idle_s, stacks.get(rank, ""))
            for rank, idle_s in hang.idle_s.items()
        }
        return Stopped(first_to_stop(hang.ranks, stacks), exits, self._write(group.attempt, stacks))

    def _write(self, attempt: int, stacks: Mapping[int, str]) -> str | None:
        """Write the stacks beside the logs; a full disk must not hide the hang."""
        path = os.path.join(os.path.dirname(self._plan.log_path(attempt, 0)), "stacks.txt")
        text = "\n\n".join(f"rank {rank}\n{stacks[rank]}" for rank in sorted(stacks))
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text + "\n")
        except OSError as error:
            log.warning("the stacks of a group that hangs could not be saved: %s", error)
            return None
        return path

"""Decides when a silent group counts as hung: arithmetic on times that are passed in.

Workers give signs of life: they begin, report, meet, deliver. Silence is measured on a clock that
runs only while silence means something: not while the driver was asleep or busy, and not while a
rank waits for the driver, since other ranks may wait for that rank in turn.

A group is hung when no rank has given a sign for the timeout. A single rank counts as hung while
others go on only if it has reported regularly: some ranks leave reporting to others and are
healthy. Before a hang is declared the driver listens for a moment, usually the last part of the
timeout, so that signs which queued up while it slept are heard.

No clock, no threads: every method takes the time, in monotonic seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

TICK_S = 1.0
ASLEEP_S = 5.0  # if a tick comes later than this, the driver was not listening
SETTLE_S = 5.0
ROUNDING_S = 0.001
START_MIN_S = 1800.0
LEARNED_MIN_S = 1800.0
LEARNED_FACTOR = 20.0
LEARNED_GAPS = 5
_DOUBLINGS_MAX = 10


@dataclass(slots=True)
class Learned:
    """How long healthy workers were silent so far; shared by all attempts of a driver.

    Attributes:
        gaps: How many times from one report to the next were seen, of the rank with most reports.
        longest_s: The longest silence that ended, for whatever reason: first steps count too.
        worked_s: For how long there was progress in all attempts together.
        hangs: Groups that were declared hung when a learned timeout ran out.
    """

    gaps: int = 0
    longest_s: float = 0.0
    worked_s: float = 0.0
    hangs: int = 0

    def timeout_s(self, *, is_first_step: bool) -> float:
        """Return how much silence is too much, infinity while too little was seen.

        The first step of a later attempt may skip through all data of the steps before it, which
        takes no longer than those steps took.
        """
        if self.gaps < LEARNED_GAPS:
            return math.inf
        longest_s = max(LEARNED_MIN_S, LEARNED_FACTOR * self.longest_s)
        return max(longest_s, self.worked_s) if is_first_step else longest_s


@dataclass(frozen=True, slots=True)
class Hang:
    """A group that made no progress.

    Attributes:
        ranks: The silent ones. First comes the one that probably stopped first: it is behind the
            others, has been silent for longest, or never began.
        idle_s: How long each silent rank has been silent.
        timeout_s: How much silence was allowed.
    """

    ranks: tuple[int, ...]
    idle_s: Mapping[int, float]
    timeout_s: float

    @property
    def first(self) -> int:
        """The rank that stopped first."""
        return self.ranks[0]


@dataclass(slots=True)
class _Rank:
    """The signs of one rank; `last` is on the clock of `Progress`, None until it began."""

    last: float | None = None
    reports: int = 0
    longest: float = 0.0


class Progress:
    """Follows the signs of life of one group.

    Args:
        timeout_s: How much silence is too much, counted from when a worker began. None learns it,
            infinity allows any. If it is given, a group of which no worker begins within this time
            and within half an hour is hung too.
        learned: What earlier attempts taught; this one adds to it.
    """

    def __init__(
        self, ranks: Iterable[int], timeout_s: float | None, now: float, learned: Learned
    ) -> None:
        self._running = {rank: _Rank() for rank in ranks}
        self._given = timeout_s
        self._learned = learned
        # A healthy attempt with rare long silences must get through in the end: each time a learned
        # timeout ran out, the next attempt has twice as much.
        self._patience = 2.0 ** min(learned.hangs, _DOUBLINGS_MAX)
        self._now = now
        self._clock = 0.0
        self._last_sign: float | None = None  # None until a rank began
        self._reports_most = 0
        self._busy: set[int] = set()
        self._suspected: float | None = None
        self._is_called_hung = False

    @property
    def timeout_s(self) -> float:
        """How much silence is too much at present."""
        if self._given is not None:
            return self._given
        learned_s = self._learned.timeout_s(is_first_step=self._reports_most == 0)
        return learned_s * self._patience

    def tick(self, now: float) -> None:
        """Note that the driver listens; this or another method is called every second or sooner."""
        passed = now - self._now
        if passed <= 0:
            return
        self._now = now
        if not self._busy:
            self._clock += passed if passed <= ASLEEP_S else TICK_S

    def gave_sign(self, rank: int, now: float) -> None:
        """Note a sign of life that is not a report; the first one means that the rank began."""
        self._note_sign_of(rank, now)

    def reported(self, rank: int, now: float) -> None:
        """Note a report of a rank."""
        signs = self._note_sign_of(rank, now)
        if signs is None:
            return
        signs.reports += 1
        if signs.reports > self._reports_most:
            self._reports_most = signs.reports
            if signs.reports > 1:
                self._learned.gaps += 1

    def busy(self, rank: int, now: float) -> None:
        """Stop the clock until `not_busy`: a rank waits for the driver, or is storing its part.

        Not for a rank that waits for another rank.
        """
        self.tick(now)
        if rank in self._running:
            self._busy.add(rank)

    def not_busy(self, rank: int, now: float) -> None:
        """Note that a rank is not busy any more."""
        self.tick(now)
        self._busy.discard(rank)

    def finished(self, rank: int, now: float) -> None:
        """Note that a rank has ended; for the group that is a sign of life."""
        self.tick(now)
        self._busy.discard(rank)
        if self._running.pop(rank, None) is not None:
            self._note_sign()

    def hung(self, now: float) -> Hang | None:
        """Return the hang, None if there is none; call about once a second, and when due."""
        self.tick(now)
        timeout_s = self.timeout_s
        left_s, settle_s = self._left_s(timeout_s), _settle_s(timeout_s)
        if left_s > settle_s:
            self._suspected = None
            return None
        if self._suspected is None:
            self._suspected = self._clock
        if left_s >= 0 or self._clock - self._suspected < settle_s - ROUNDING_S:
            return None
        if self._given is None and not self._is_called_hung:
            self._learned.hangs += 1
        self._is_called_hung = True
        return self._hang(self._idle(timeout_s), timeout_s)

    def due_s(self) -> float:
        """Return how soon to call `hung` again if no sign comes; infinity for never."""
        timeout_s = self.timeout_s
        left_s, settle_s = self._left_s(timeout_s), _settle_s(timeout_s)
        if self._suspected is None:
            return left_s - settle_s + ROUNDING_S
        return max(left_s, self._suspected + settle_s - self._clock) + ROUNDING_S

    # ------------------------------------------------------------------ signs

    def _note_sign_of(self, rank: int, now: float) -> _Rank | None:
        self.tick(now)
        signs = self._running.get(rank)
        if signs is None:
            return None  # a late message of a rank that has ended
        if signs.last is not None:
            signs.longest = max(signs.longest, self._clock - signs.last)
            self._learned.longest_s = max(self._learned.longest_s, signs.longest)
        signs.last = self._clock
        self._note_sign()
        return signs

    def _note_sign(self) -> None:
        if self._last_sign is not None:
            self._learned.worked_s += self._clock - self._last_sign
        self._last_sign = self._clock

    # ------------------------------------------------------------------ silence

    def _left_s(self, timeout_s: float) -> float:
        """Return how much more silence is allowed, infinity for any; below 0 it is too much."""
        if self._busy or not self._running:
            return math.inf
        if self._last_sign is None:
            return math.inf if self._given is None else max(self._given, START_MIN_S) - self._clock
        missed_at = (self._missed_at(signs, timeout_s) for signs in self._running.values())
        return min(self._last_sign + timeout_s, *missed_at) - self._clock

    def _missed_at(self, signs: _Rank, timeout_s: float) -> float:
        """Return when a rank that reports regularly is missed, although others may go on."""
        gaps = signs.reports - 1
        if signs.last is None or gaps < (LEARNED_GAPS if self._given is None else 1):
            return math.inf
        return signs.last + max(timeout_s, LEARNED_FACTOR * signs.longest)

    def _idle(self, timeout_s: float) -> dict[int, float]:
        """Return the silent ranks; half the timeout is enough, as some began to wait later."""
        silences = {
            rank: self._clock - (signs.last if signs.last is not None else 0.0)
            for rank, signs in self._running.items()
        }
        return {rank: silence for rank, silence in silences.items() if silence > timeout_s / 2}

    def _hang(self, idle_s: Mapping[int, float], timeout_s: float) -> Hang:
        def suspicion(rank: int) -> tuple[int, int, float]:
            signs = self._running[rank]
            if signs.last is None:
                return 0, -1, 0.0
            if signs.reports == 0 and self._reports_most > 2:
                return 2, 0, signs.last  # it leaves reporting to others
            is_usual = idle_s[rank] <= 2 * signs.longest
            return int(is_usual), signs.reports, signs.last

        return Hang(tuple(sorted(idle_s, key=suspicion)), idle_s, timeout_s)


def _settle_s(timeout_s: float) -> float:
    return min(timeout_s / 2, SETTLE_S)

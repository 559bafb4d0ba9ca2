"""When a group that says nothing counts as hung: arithmetic on times that are passed in.

Workers give signs: they begin, report, meet, deliver. Silence is measured on a clock that runs only
while silence means something: not while the driver itself was asleep or busy with something long,
and not while a rank waits for the driver, since other ranks may wait for that one in turn.

A group is hung when no rank has given a sign for the timeout. A single rank is called hung while
others go on only if it has the habit of reporting: ranks that leave reporting to another are no
less healthy. Whoever is called hung was listened to for a moment before that, as a rule the last
part of the timeout: signs that wait to be heard, after a sleep of the driver above all, are heard.

No clock, no threads: every method takes the time, in monotonic seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

TICK_S = 1.0
ASLEEP_S = 5.0  # from one tick to the next; if it took longer, the driver was not listening
SETTLE_S = 5.0
ROUNDING_S = 0.001
START_MIN_S = 1800.0
LEARNED_MIN_S = 1800.0
LEARNED_FACTOR = 20.0
LEARNED_GAPS = 5
_DOUBLINGS_MAX = 10


@dataclass(slots=True)
class Learned:
    """How long healthy workers were silent so far; one for all attempts of a driver.

    Attributes:
        gaps: Times from one report to the next that were seen, those of the most eager rank.
        longest_s: The longest silence that ended, whatever it was for: first steps count too.
        worked_s: For how long there was progress, all attempts together.
        hangs: Groups that were called hung when a time that was learned ran out.
    """

    gaps: int = 0
    longest_s: float = 0.0
    worked_s: float = 0.0
    hangs: int = 0

    def timeout_s(self, *, is_first_step: bool) -> float:
        """Return how much silence is too much, infinity while too little is known.

        The first step of a later attempt may go through all the data that went before, which
        takes no longer than the work it repeats.
        """
        if self.gaps < LEARNED_GAPS:
            return math.inf
        longest_s = max(LEARNED_MIN_S, LEARNED_FACTOR * self.longest_s)
        return max(longest_s, self.worked_s) if is_first_step else longest_s


@dataclass(frozen=True, slots=True)
class Hang:
    """A group that has stopped.

    Attributes:
        ranks: Those that are silent, first the one that stopped first, as far as signs can tell: it
            is behind the others, or has been silent for longest, or never began.
        idle_s: The ranks that are silent, and for how long.
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
    """What was heard of a rank; `last` is on the clock of `Progress`, None until it began."""

    last: float | None = None
    reports: int = 0
    longest: float = 0.0


class Progress:
    """The signs of one group.

    Args:
        timeout_s: How much silence is too much, counted from when a worker began; None learns it,
            and infinity never finds any too long. If it is given, and no worker has begun within
            half an hour and this time, that is too long as well: starting takes what it may, but
            not for ever.
        learned: What attempts before this one taught, and where this one adds to it.
    """

    def __init__(
        self, ranks: Iterable[int], timeout_s: float | None, now: float, learned: Learned
    ) -> None:
        self._running = {rank: _Rank() for rank in ranks}
        self._given = timeout_s
        self._learned = learned
        # An attempt that was ended though it was healthy, only rare in its ways, gets through in
        # the end: whenever a time that was learned ran out, the next attempt has twice as much.
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
        """The driver listens; to be called at least once a second, by whatever method."""
        passed = now - self._now
        if passed <= 0:
            return
        self._now = now
        if not self._busy:
            self._clock += passed if passed <= ASLEEP_S else TICK_S

    def made(self, rank: int, now: float) -> None:
        """A rank gave a sign of life that is not a report; its first one says that it began."""
        self._hear(rank, now)

    def reported(self, rank: int, now: float) -> None:
        """A rank has made a report."""
        heard = self._hear(rank, now)
        if heard is None:
            return
        heard.reports += 1
        if heard.reports > self._reports_most:
            self._reports_most = heard.reports
            if heard.reports > 1:
                self._learned.gaps += 1

    def busy(self, rank: int, now: float) -> None:
        """A rank waits for the driver, or is known to be storing: silence says nothing now.

        Not for a rank that waits for another rank; the clock stands until `not_busy`.
        """
        self.tick(now)
        if rank in self._running:
            self._busy.add(rank)

    def not_busy(self, rank: int, now: float) -> None:
        """What a rank was busy with is done."""
        self.tick(now)
        self._busy.discard(rank)

    def finished(self, rank: int, now: float) -> None:
        """A rank has ended and is not heard of any more; for the others it is a sign."""
        self.tick(now)
        self._busy.discard(rank)
        if self._running.pop(rank, None) is not None:
            self._note_sign()

    def hung(self, now: float) -> Hang | None:
        """Return who stopped, None if nobody did; ask about once a second, and when it is due."""
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
        """Return how soon to ask `hung` again, if nothing is heard; infinity for no need."""
        timeout_s = self.timeout_s
        left_s, settle_s = self._left_s(timeout_s), _settle_s(timeout_s)
        if self._suspected is None:
            return left_s - settle_s + ROUNDING_S
        return max(left_s, self._suspected + settle_s - self._clock) + ROUNDING_S

    # ------------------------------------------------------------------ signs

    def _hear(self, rank: int, now: float) -> _Rank | None:
        self.tick(now)
        heard = self._running.get(rank)
        if heard is None:
            return None  # late news of a rank that has ended
        if heard.last is not None:
            heard.longest = max(heard.longest, self._clock - heard.last)
            self._learned.longest_s = max(self._learned.longest_s, heard.longest)
        heard.last = self._clock
        self._note_sign()
        return heard

    def _note_sign(self) -> None:
        if self._last_sign is not None:
            self._learned.worked_s += self._clock - self._last_sign
        self._last_sign = self._clock

    # ------------------------------------------------------------------ silence

    def _left_s(self, timeout_s: float) -> float:
        """Return how much more silence is allowed, infinity for any; less than 0 is too much."""
        if self._busy or not self._running:
            return math.inf
        if self._last_sign is None:
            return math.inf if self._given is None else max(self._given, START_MIN_S) - self._clock
        of_habits = (self._habit_s(one, timeout_s) for one in self._running.values())
        return min(self._last_sign + timeout_s, *of_habits) - self._clock

    def _habit_s(self, one: _Rank, timeout_s: float) -> float:
        """Return when a rank that reports is missed, while others may still go on."""
        gaps = one.reports - 1
        if one.last is None or gaps < (LEARNED_GAPS if self._given is None else 1):
            return math.inf
        return one.last + max(timeout_s, LEARNED_FACTOR * one.longest)

    def _idle(self, timeout_s: float) -> dict[int, float]:
        """Return who is silent: also those who stopped when others had waited for them a while."""
        silences = {
            rank: self._clock - (one.last if one.last is not None else 0.0)
            for rank, one in self._running.items()
        }
        return {rank: silence for rank, silence in silences.items() if silence > timeout_s / 2}

    def _hang(self, idle_s: Mapping[int, float], timeout_s: float) -> Hang:
        def place(rank: int) -> tuple[int, int, float]:
            one = self._running[rank]
            if one.last is None:
                return 0, -1, 0.0
            if one.reports == 0 and self._reports_most > 2:
                return 2, 0, one.last  # it leaves reporting to others
            is_usual = idle_s[rank] <= 2 * one.longest
            return int(is_usual), one.reports, one.last

        return Hang(tuple(sorted(idle_s, key=place)), idle_s, timeout_s)


def _settle_s(timeout_s: float) -> float:
    return min(timeout_s / 2, SETTLE_S)

"""One bracket of HyperBand: trials that run to a milestone, wait for each other, and are halved."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

from holdfast.tune.schedulers.scored_scheduler import order_of


@dataclass(frozen=True)
class Plan:
    """How many trials a bracket has room for, and where they wait for each other.

    At every milestone but the last, one in `eta` goes on.
    """

    room: int
    milestones: Sequence[int]
    eta: float


def plans_for(max_t: float, eta: float) -> list[Plan]:
    """Return the brackets of one band, from the one that halves never to the one that does most.

    As in Algorithm 1 of the paper: the longest halves floor(log(max_t) / log(eta)) times. By exact
    fractions, because logarithms and powers of floats end up on the wrong side of a whole number.
    """
    exact, longest = Fraction(eta), 0
    while exact ** (longest + 1) <= max_t:
        longest += 1
    found = []
    for s in range(longest + 1):
        room = math.ceil(Fraction(longest + 1, s + 1) * exact**s)
        milestones = [math.floor(Fraction(max_t) / exact**left) for left in range(s, -1, -1)]
        found.append(Plan(room, milestones, eta))
    return found


@dataclass
class Member:
    """A trial in a bracket; `time` and `score` are those of its arrival, None while on its way."""

    number: int
    time: float | None = None
    score: float | None = None


@dataclass
class Bracket:
    """Successive halving of those trials that have joined.

    Attributes:
        number: Its place in the order in which brackets were made.
        plan: The index of its plan in the band.
        entrants: How many have joined, the ones that are gone included.
        is_closed: Whether nobody can join any more.
        rung: How often it was halved.
        members: Those that still compete, by id.
    """

    number: int
    plan: int
    entrants: int = 0
    is_closed: bool = False
    rung: int = 0
    members: dict[str, Member] = field(default_factory=dict)

    def join(self, trial_id: str, number: int, room: int) -> None:
        self.members[trial_id] = Member(number)
        self.entrants += 1
        self.is_closed = self.entrants >= room

    def waits(self, trial_id: str) -> bool:
        """Whether a trial is at the milestone and others are not yet."""
        return self.members[trial_id].time is not None

    def arrive(self, trial_id: str, time: float, score: float) -> None:
        self.members[trial_id].time = time
        self.members[trial_id].score = score

    def depart(self, trial_id: str) -> None:
        """A trial is on its way: again, if it had arrived and then lost what it had."""
        self.members[trial_id].time = None
        self.members[trial_id].score = None

    def is_last_rung(self, plan: Plan) -> bool:
        return self.rung == len(plan.milestones) - 1

    def is_ready(self, plan: Plan) -> bool:
        """Whether everybody is there, so that it can be halved."""
        everybody = all(map(self.waits, self.members))
        return self.is_closed and everybody and bool(self.members) and not self.is_last_rung(plan)

    def halve(self, plan: Plan) -> list[str]:
        """Send the best on to the next milestone; return the others, who are no members any more.

        Who left early leaves their place empty: how many may stay follows from how many came.
        """
        places = self.entrants
        for _ in range(self.rung + 1):
            places = math.ceil(Fraction(places) / Fraction(plan.eta))
        losers = self.ranked()[places:]
        for trial_id in losers:
            del self.members[trial_id]
        self.rung += 1
        for trial_id, member in self.members.items():
            assert member.time is not None
            if member.time < plan.milestones[self.rung] or self.is_last_rung(plan):
                self.depart(trial_id)
        return losers

    def ranked(self) -> list[str]:
        """Return those who have arrived, the best first; of equals, the one that was made first."""
        arrived = [(name, one) for name, one in self.members.items() if one.score is not None]
        arrived.sort(key=lambda found: (-order_of(found[1].score or 0.0), found[1].number))
        return [name for name, _ in arrived]

    def retain(self, is_live: Callable[[str], bool]) -> None:
        """Drop the members that are over, however that came."""
        self.members = {name: one for name, one in self.members.items() if is_live(name)}

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> Bracket:
        members = {name: Member(**member) for name, member in kept["members"].items()}
        return cls(**{**kept, "members": members})

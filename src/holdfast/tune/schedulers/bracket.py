"""A bracket of HyperBand: trials that run to a milestone, wait there, and are halved."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

from holdfast.tune.schedulers.scored_scheduler import order_of


@dataclass(frozen=True)
class Plan:
    """How many trials a bracket has room for, and its milestones.

    At every milestone but the last, one in `eta` trials goes on.
    """

    room: int
    milestones: Sequence[int]
    eta: float


def plans_for(max_t: float, eta: float) -> list[Plan]:
    """Return the brackets of one band, from the one that never halves to the one that halves most.

    As in Algorithm 1 of the paper: the longest halves floor(log(max_t) / log(eta)) times. Computed
    with fractions, because logarithms and powers of floats can miss a whole number.
    """
    exact, longest = Fraction(eta), 0
    while exact ** (longest + 1) <= max_t:
        longest += 1
    plans = []
    for halvings in range(longest + 1):
        room = math.ceil(Fraction(longest + 1, halvings + 1) * exact**halvings)
        milestones = [math.floor(Fraction(max_t) / exact**left) for left in range(halvings, -1, -1)]
        plans.append(Plan(room, milestones, eta))
    return plans


@dataclass
class Member:
    """A trial in a bracket; `time` and `score` are None until it arrives at the milestone."""

    number: int
    time: float | None = None
    score: float | None = None


@dataclass
class Bracket:
    """Successive halving of the trials that have joined.

    Attributes:
        number: Its place in the order in which brackets were made.
        plan: The index of its plan in the band.
        entrants: How many trials have joined, including those that left.
        is_closed: Whether no more trials can join.
        rung: How often it was halved.
        members: The trials that still compete, by id.
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
        """Return whether a trial is at the milestone and waits there for others."""
        return self.members[trial_id].time is not None

    def arrive(self, trial_id: str, time: float, score: float) -> None:
        self.members[trial_id].time = time
        self.members[trial_id].score = score

    def depart(self, trial_id: str) -> None:
        """Mark a trial as on its way, perhaps again after it lost progress."""
        self.members[trial_id].time = None
        self.members[trial_id].score = None

    def is_last_rung(self, plan: Plan) -> bool:
        return self.rung == len(plan.milestones) - 1

    def is_ready(self, plan: Plan) -> bool:
        """Return whether all members have arrived, so that the bracket can be halved."""
        all_wait = bool(self.members) and all(map(self.waits, self.members))
        return self.is_closed and all_wait and not self.is_last_rung(plan)

    def halve(self, plan: Plan) -> list[str]:
        """Send the best on to the next milestone; remove and return the others.

        How many stay depends on the entrants: a trial that left early is not replaced.
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
        """Return the trials that have arrived, the best first; of equals, the older first."""
        arrived = [
            (-order_of(member.score), member.number, trial_id)
            for trial_id, member in self.members.items()
            if member.score is not None
        ]
        return [trial_id for *_, trial_id in sorted(arrived)]

    def retain(self, is_live: Callable[[str], bool]) -> None:
        """Drop the members that are over."""
        self.members = {name: member for name, member in self.members.items() if is_live(name)}

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Bracket:
        members = {name: Member(**member) for name, member in data["members"].items()}
        return cls(**{**data, "members": members})

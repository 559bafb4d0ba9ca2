"""Asks questions: sides take turns, the first round is dropped, load is written down.

Each round begins with another side, so that what one leaves behind (a disk that still has work, a
cache that is full) does not always fall on the same one.
"""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bench.question import Claim, Question, Round, Side
from bench.summary import COUNT_EARLY, Summary, Verdict

FAILURES_MAX = 2  # of one peer in one question: each may have been a wait for nothing
MORE_ROUNDS = 3  # where the spread spans the bar: of eight, the two on the outside do not count


class SideFailed(Exception):
    """A side could not do its work: if it is our own, the question has no answer."""


@dataclass(frozen=True)
class Answer:
    """The rounds of a question that count, and the load average before and after them.

    `left_out` says of each side that was not measured, or not in all rounds, why that is; `took_s`
    how long each side was at work in all, with everything around what is timed.
    """

    name: str
    question: Question
    rounds: Sequence[Round]
    load: tuple[float, float]
    left_out: Mapping[str, str]
    took_s: Mapping[str, float] = field(default_factory=dict)

    def sides(self) -> list[Side]:
        """Return the sides that were measured."""
        return [side for side in self.question.sides if self._rounds_with([side.name])]

    def claims(self) -> list[Claim]:
        """Return the claims about sides that were all measured."""
        return [claim for claim in self.question.claims if self._rounds_with(claim.figure.sides)]

    def of_claim(self, claim: Claim) -> Summary:
        rounds = self._rounds_with(claim.figure.sides)
        return Summary.of([claim.figure.of(measured) for measured in rounds])

    def verdict(self, claim: Claim) -> Verdict:
        return self.of_claim(claim).verdict(claim.bar)

    def undecided(self, after: int) -> set[str]:
        """Return the figures that a bar depends on of which nothing can be said yet.

        Those of a claim about a side that is not measured after so many rounds will tell no more.
        """
        unclear = (Verdict.TOO_FEW, Verdict.UNCLEAR)
        sides = self.question.sides
        names = {side.name for side in sides}
        out = [side for side in sides if (side.rounds_max or after + 1) <= after]
        return {
            figure
            for claim in self.claims()
            if self.verdict(claim) in unclear
            and not any(is_of(one, side.name, names) for one in claim.figure.sides for side in out)
            for figure in claim.figure.sides
        }

    def _rounds_with(self, sides: Sequence[str]) -> list[Round]:
        return [measured for measured in self.rounds if all(side in measured for side in sides)]


def ask(name: str, question: Question, rounds: int, *, stops_early: bool = False) -> Answer:
    """Measure every side in turn, `rounds` times after one that warms up.

    With `stops_early`, after three rounds only those are measured on whom a verdict still depends,
    and these a few times more if it has not come by then.
    """
    rounds = min(rounds, question.rounds_max or rounds)
    asked = _Asked(question)
    before = os.getloadavg()[0]
    if question.warms_up:
        asked.round(0)
    measured: list[Round] = []

    def answer() -> Answer:
        load = before, os.getloadavg()[0]
        return Answer(name, question, measured, load, asked.left_out, asked.took_s)

    for number in range(1, rounds + 1 + (MORE_ROUNDS if stops_early else 0)):
        if stops_early and number > min(rounds, COUNT_EARLY):
            asked.go_on_with(answer().undecided(number - 1))
        if found := asked.round(number):
            measured.append(found)
    return answer()


class _Asked:
    """A question in the middle of its rounds: who is out, and why, and how long each has taken."""

    def __init__(self, question: Question) -> None:
        self._sides = question.sides
        self._failures: Counter[str] = Counter()
        self.left_out = {side.name: side.left_out for side in question.sides if side.left_out}
        self.took_s: dict[str, float] = {}

    def go_on_with(self, figures: Collection[str]) -> None:
        """Measure no side any more that none of these figures is of: "side", or "side x"."""
        names = {side.name for side in self._sides}
        self._sides = [
            side
            for side in self._sides
            if any(is_of(figure, side.name, names) for figure in figures)
        ]

    def round(self, number: int) -> Round:
        """Measure once each side that takes part in this round, 0 for the one that warms up."""
        sides = [side for side in self._sides if self._takes_part(side, number)]
        first = number % max(1, len(sides))
        found: dict[str, float] = {}
        for side in [*sides[first:], *sides[:first]]:
            gc.collect()  # what one side left behind is not the next one's to clean up
            begun = time.monotonic()
            figures = self._figures(side, number)
            self.took_s[side.name] = self.took_s.get(side.name, 0.0) + time.monotonic() - begun
            found |= {f"{side.name} {name}".rstrip(): figure for name, figure in figures.items()}
        return found

    def _takes_part(self, side: Side, number: int) -> bool:
        if side.left_out or self._failures[side.name] == FAILURES_MAX:
            return False
        if side.rounds_max is None:
            return True
        return 0 < number <= side.rounds_max  # slow to start, and so is each of its rounds

    def _figures(self, side: Side, number: int) -> Mapping[str, float]:
        """Measure a side once; nothing if it failed, after which it may be left out."""
        try:
            measured = side.measure()
        except Exception as failure:
            if side.is_ours:
                raise
            self._failures[side.name] += 1
            self.left_out[side.name] = f"failed in round {number}: {failure}"
            return {}
        return measured if isinstance(measured, Mapping) else {"": measured}


def is_of(figure: str, side: str, sides: Collection[str]) -> bool:
    """Whether a figure is one of a side's; a side may be called as another and more."""
    return figure == side or (figure not in sides and figure.startswith(f"{side} "))

"""Asks questions: sides take turns, the first round is dropped, load is written down.

Each round begins with another side, so that what one leaves behind (a disk that still has work, a
cache that is full) does not always fall on the same one.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.question import Claim, Question, Round, Side
from bench.summary import Summary, Verdict


class SideFailed(Exception):
    """A side could not do its work; it is not tried again, and if it is our own, nothing is."""


@dataclass(frozen=True)
class Answer:
    """The rounds of a question that count, and the load average before and after them.

    `left_out` says of each side that was not measured, or not in all rounds, why that is.
    """

    name: str
    question: Question
    rounds: Sequence[Round]
    load: tuple[float, float]
    left_out: Mapping[str, str]

    def sides(self) -> list[Side]:
        """Return the sides that were measured."""
        return [side for side in self.question.sides if self._rounds_with([side.name])]

    def claims(self) -> list[Claim]:
        """Return the claims about sides that were all measured."""
        return [claim for claim in self.question.claims if self._rounds_with(claim.figure.sides)]

    def of_side(self, side: Side) -> Summary:
        return Summary.of([measured[side.name] for measured in self._rounds_with([side.name])])

    def of_claim(self, claim: Claim) -> Summary:
        rounds = self._rounds_with(claim.figure.sides)
        return Summary.of([claim.figure.of(measured) for measured in rounds])

    def verdict(self, claim: Claim) -> Verdict:
        return self.of_claim(claim).verdict(claim.bar)

    def _rounds_with(self, sides: Sequence[str]) -> list[Round]:
        return [measured for measured in self.rounds if all(side in measured for side in sides)]


def ask(name: str, question: Question, rounds: int) -> Answer:
    """Measure every side in turn, `rounds` times after one that warms up."""
    rounds = min(rounds, question.rounds_max or rounds)
    left_out = {side.name: side.left_out for side in question.sides if side.left_out}
    before = os.getloadavg()[0]
    measured = []
    for number in range(rounds + 1):
        sides = [
            side
            for side in question.sides
            if side.name not in left_out and number <= (side.rounds_max or rounds)
        ]
        measured.append(_round(sides, left_out, begin_with=number))
    return Answer(name, question, measured[1:], (before, os.getloadavg()[0]), left_out)


def _round(sides: Sequence[Side], left_out: dict[str, str], *, begin_with: int) -> Round:
    """Measure the sides once; one that fails goes to those that are left out."""
    found: dict[str, float] = {}
    first = begin_with % max(1, len(sides))
    for side in [*sides[first:], *sides[:first]]:
        gc.collect()  # what one side left behind is not the next one's to clean up
        try:
            measured = side.measure()
        except SideFailed as failure:
            if side.is_ours:
                raise
            left_out[side.name] = f"failed in round {begin_with}: {failure}"
            continue
        figures = measured if isinstance(measured, Mapping) else {"": measured}
        found |= {f"{side.name} {name}".rstrip(): figure for name, figure in figures.items()}
    return found

"""Asks questions: sides take turns, the first round is dropped, load is written down.

Each round begins with another side, so that what one leaves behind (a disk that still has work, a
cache that is full) does not always fall on the same one.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass

from bench.question import Claim, Question, Round, Side
from bench.summary import Summary, Verdict


@dataclass(frozen=True)
class Answer:
    """The rounds of a question that count, and the load average before and after them."""

    name: str
    question: Question
    rounds: Sequence[Round]
    load: tuple[float, float]

    def of_side(self, side: Side) -> Summary:
        return Summary.of([measured[side.name] for measured in self.rounds])

    def of_claim(self, claim: Claim) -> Summary:
        return Summary.of([claim.figure(measured) for measured in self.rounds])

    def verdict(self, claim: Claim) -> Verdict:
        return self.of_claim(claim).verdict(claim.bar)


def ask(name: str, question: Question, rounds: int) -> Answer:
    """Measure every side in turn, `rounds` times after one that warms up."""
    rounds = min(rounds, question.rounds_max or rounds)
    before = os.getloadavg()[0]
    measured = [_round(question.sides, begin_with=number) for number in range(rounds + 1)]
    return Answer(name, question, measured[1:], (before, os.getloadavg()[0]))


def _round(sides: Sequence[Side], *, begin_with: int) -> Round:
    found = {}
    first = begin_with % len(sides)
    for side in [*sides[first:], *sides[:first]]:
        gc.collect()  # what one side left behind is not the next one's to clean up
        found[side.name] = side.measure()
    return found

"""Records for tests, made as a run makes them."""

from __future__ import annotations

from collections.abc import Mapping

from bench.question import Claim, Question, Side, at_least, ratio
from bench.record import Record
from bench.runner import Answer

MACHINE = {"processor": "a slow one", "holdfast": "0.1.0"}


def record(
    name: str,
    figures: Mapping[str, float],
    *,
    measured: str = "2026-01-01",
    unit: str = "s",
    is_quick: bool = False,
) -> Record:
    """Return the record of a question in which every round found these figures."""
    names = [side for side in figures if " " not in side]
    peers = [side for side in names if side != "holdfast" and figures["holdfast"]]
    asked = Question(
        f"what {name} takes",
        unit,
        [Side(side, lambda: 0.0) for side in names],
        [Claim(f"times {side}", ratio(side, "holdfast"), at_least(2)) for side in peers],
    )
    answer = Answer(name, asked, [figures] * 5, (0.1, 0.2), {}, dict.fromkeys(names, 1.0))
    return Record.of(answer, measured=measured, machine=MACHINE, is_quick=is_quick, in_all_s=9.0)

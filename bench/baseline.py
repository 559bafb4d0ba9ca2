"""What was found before, kept with the code, and what has moved since.

Only ratios are compared, because they hardly depend on the machine. One has moved if the range in
which the true median lies does not touch the old one, and the median is further from the old one
than the noise of a shared machine explains.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.question import Claim
from bench.runner import Answer
from bench.summary import Summary

PATH = Path(__file__).parent / "baseline.json"
MOVED_MIN = 1.25  # times as much, or as little


@dataclass(frozen=True)
class Move:
    """A ratio that is not what it was; `is_worse` is None where nobody said what is better."""

    question: str
    claim: str
    before: float
    now: float
    is_worse: bool | None

    def __str__(self) -> str:
        word = {True: "WORSE", False: "better", None: "moved"}[self.is_worse]
        return f"{word}: {self.question}, {self.claim}: was {self.before:.3g}, is {self.now:.3g}"


def keep(path: Path, answers: Sequence[Answer], machine: Mapping[str, str]) -> None:
    """Write what was found now as the baseline for later runs.

    Of a run of some questions, the others stay as they are.
    """
    ratios = _kept(path)
    for answer in answers:
        ratios[answer.name] = {
            claim.text: answer.of_claim(claim) for claim in answer.claims() if claim.figure.is_ratio
        }
    data = {
        name: {text: asdict(found) for text, found in claims.items()}
        for name, claims in ratios.items()
    }
    record = {"machine": machine, "ratios": data}
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def moves(path: Path, answers: Sequence[Answer]) -> list[Move]:
    """Return what has moved since the baseline was kept; what it does not know has not."""
    ratios = _kept(path)
    found = []
    for answer in answers:
        for claim in answer.claims():
            before = ratios.get(answer.name, {}).get(claim.text)
            now = answer.of_claim(claim)
            if before is not None and claim.figure.is_ratio and _has_moved(before, now):
                worse = _is_worse(claim, before, now)
                found.append(Move(answer.name, claim.text, before.median, now.median, worse))
    return found


def unknown(path: Path, answers: Sequence[Answer]) -> list[str]:
    """Return the questions of which the baseline knows nothing."""
    kept = _kept(path)
    return [answer.name for answer in answers if answer.name not in kept]


def _kept(path: Path) -> dict[str, dict[str, Summary]]:
    if not path.exists():
        return {}
    ratios = json.loads(path.read_text())["ratios"]
    return {
        name: {text: Summary(**found) for text, found in claims.items()}
        for name, claims in ratios.items()
    }


def _has_moved(before: Summary, now: Summary) -> bool:
    apart = now.low > before.high or now.high < before.low
    factor = now.median / before.median
    return apart and not 1 / MOVED_MIN < factor < MOVED_MIN


def _is_worse(claim: Claim, before: Summary, now: Summary) -> bool | None:
    if claim.bar is None:
        return None
    return (now.median > before.median) == claim.bar.at_most

"""What is kept of an answer: in the JSON file of a run, and beside what is published."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.question import Round
from bench.runner import Answer
from bench.summary import CONFIDENCE, Summary, Verdict

VERSION = 2


@dataclass(frozen=True)
class ClaimRecord:
    """A claim as it was found; `bar` is "" where nothing must be reached."""

    text: str
    median: float
    low: float
    high: float
    bar: str
    verdict: str


@dataclass(frozen=True)
class Record:
    """One question, when and where it was asked, every measurement, and what was made of them.

    Attributes:
        sides: The names of those that were measured, in the order of the question.
        is_quick: Whether it was asked at the small scale, which is not to be published.
        took_s: How long each side was at work; `in_all_s` has what was set up and removed, too.
    """

    name: str
    what: str
    unit: str
    measured: str
    machine: Mapping[str, str]
    is_quick: bool
    sides: Sequence[str]
    rounds: Sequence[Round]
    claims: Sequence[ClaimRecord]
    left_out: Mapping[str, str]
    load: tuple[float, float]
    took_s: Mapping[str, float]
    in_all_s: float

    @classmethod
    def of(
        cls,
        answer: Answer,
        *,
        measured: str,
        machine: Mapping[str, str],
        is_quick: bool,
        in_all_s: float,
    ) -> Record:
        return cls(
            answer.name,
            answer.question.what,
            answer.question.unit,
            measured,
            machine,
            is_quick,
            [side.name for side in answer.sides()],
            answer.rounds,
            [_claim_record(answer, number) for number in range(len(answer.claims()))],
            answer.left_out,
            answer.load,
            answer.took_s,
            in_all_s,
        )

    def of_figure(self, name: str) -> Summary | None:
        """Return what a side measured ("side", or "side x"), None if it was not measured."""
        figures = [measured[name] for measured in self.rounds if name in measured]
        return Summary.of(figures) if figures else None

    def verdict(self, claim: ClaimRecord) -> Verdict:
        return Verdict[claim.verdict.upper()]


def write(path: Path, records: Iterable[Record]) -> None:
    """Write the records as one file, whole or not at all."""
    questions = {record.name: _without_name(record) for record in records}
    data = {"version": VERSION, "confidence": CONFIDENCE, "questions": questions}
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    new.replace(path)


def read(path: Path) -> list[Record]:
    """Return the records in a file, in the order in which they were asked."""
    data = json.loads(path.read_text())
    if data.get("version") != VERSION:
        raise ValueError(f"{path}: version {data.get('version')} of the results, not {VERSION}")
    return [_record(name, facts) for name, facts in data["questions"].items()]


def merged(kept: Iterable[Record], new: Iterable[Record], order: Sequence[str]) -> list[Record]:
    """Return the new records and those kept of other questions, as far as they are still asked."""
    known = {record.name: record for record in (*kept, *new)}
    return [known[name] for name in order if name in known]


def _claim_record(answer: Answer, number: int) -> ClaimRecord:
    claim = answer.claims()[number]
    found = answer.of_claim(claim)
    return ClaimRecord(
        claim.text,
        found.median,
        found.low,
        found.high,
        str(claim.bar) if claim.bar else "",
        answer.verdict(claim).name.lower(),
    )


def _without_name(record: Record) -> dict[str, Any]:
    facts = asdict(record)
    del facts["name"]
    return facts


def _record(name: str, facts: Mapping[str, Any]) -> Record:
    claims = [ClaimRecord(**claim) for claim in facts["claims"]]
    load = (facts["load"][0], facts["load"][1])
    return Record(**{**facts, "name": name, "claims": claims, "load": load})

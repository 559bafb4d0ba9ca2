"""Answers as a table for people and as JSON for programs; the same table goes into the docs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.runner import Answer
from bench.summary import CONFIDENCE, Summary

HEADINGS = ("question", "claim", "figure", "range", "bar", "verdict")
BEGIN = "<!-- measured: written by `python -m bench --publish`, not by hand -->"
END = "<!-- /measured -->"

Row = tuple[str, ...]


def rows_of(answer: Answer) -> list[Row]:
    """Return one row per claim; the question is named in the first."""
    rows: list[Row] = []
    for claim in answer.question.claims:
        found = answer.of_claim(claim)
        rows.append((
            answer.name if not rows else "",
            claim.text,
            figure(found.median),
            f"{figure(found.low)} … {figure(found.high)}",
            str(claim.bar) if claim.bar else "",
            answer.verdict(claim).value,
        ))  # fmt: skip
    return rows


def sides_of(answer: Answer) -> str:
    """Return what each side measured, in one line."""
    unit = answer.question.unit
    told = [
        f"{side.name} {_with_range(answer.of_side(side))} {unit}" for side in answer.question.sides
    ]
    before, after = answer.load
    return f"{'; '.join(told)}  (load {before:.1f} → {after:.1f})"


def as_text(rows: Sequence[Row]) -> str:
    """Return the rows as a table of plain text."""
    table = [HEADINGS, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def as_markdown(rows: Sequence[Row], machine: Mapping[str, str]) -> str:
    """Return the rows as a table of Markdown, below a description of the machine."""
    facts = "; ".join(f"{name} {said}" for name, said in machine.items())
    lines = ["| " + " | ".join(row) + " |" for row in [HEADINGS, ("---",) * len(HEADINGS), *rows]]
    return "\n".join([f"Measured on: {facts}.", "", *lines])


def as_json(answers: Sequence[Answer], machine: Mapping[str, str]) -> str:
    """Return every measurement and what was made of it."""
    questions = {answer.name: _answer_record(answer) for answer in answers}
    record = {"machine": machine, "confidence": CONFIDENCE, "questions": questions}
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"


def publish(page: Path, table: str) -> None:
    """Put `table` between the marks in `page`, in place of the one that is there."""
    head, begin, rest = page.read_text().partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no place for the table: {BEGIN} … {END}")
    page.write_text(f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}")


def figure(number: float) -> str:
    """Return a number with as many digits as a reader can use."""
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}" if abs(number) < 10 else f"{number:.1f}"


def _with_range(found: Summary) -> str:
    return f"{figure(found.median)} [{figure(found.low)} … {figure(found.high)}]"


def _answer_record(answer: Answer) -> dict[str, Any]:
    claims = []
    for claim in answer.question.claims:
        found = answer.of_claim(claim)
        claims.append({
            "text": claim.text,
            "median": found.median,
            "low": found.low,
            "high": found.high,
            "bar": str(claim.bar) if claim.bar else None,
            "verdict": answer.verdict(claim).name.lower(),
        })  # fmt: skip
    return {
        "what": answer.question.what,
        "unit": answer.question.unit,
        "rounds": list(answer.rounds),
        "load": answer.load,
        "claims": claims,
    }

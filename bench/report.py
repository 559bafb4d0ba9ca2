"""Answers as a table for people and as JSON for programs; the same table goes into the docs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.runner import Answer
from bench.summary import CONFIDENCE, Summary

HEADINGS = ("question", "claim", "figure", "range", "bar", "verdict")
MARKS = "<!-- {0}: written by `python -m bench --publish`, not by hand -->", "<!-- /{0} -->"

Row = tuple[str, ...]


def rows_of(answer: Answer) -> list[Row]:
    """Return one row per claim; the question is named in the first."""
    rows: list[Row] = []
    for claim in answer.claims():
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
    told = [f"{side.name} {_with_range(answer.of_side(side))} {unit}" for side in answer.sides()]
    before, after = answer.load
    lines = [f"{'; '.join(told)}  (load {before:.1f} → {after:.1f})"]
    lines += [f"left out: {side}: {why}" for side, why in answer.left_out.items()]
    return "\n  ".join(lines)


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


def sides_as_markdown(answers: Sequence[Answer]) -> str:
    """Return what every side measured, as a table of Markdown."""
    rows = [("question", "what each side took"), ("---", "---")]
    for answer in answers:
        unit = answer.question.unit
        told = [f"{side.name} {figure(answer.of_side(side).median)}" for side in answer.sides()]
        measured = {side.name for side in answer.sides()}
        told += [f"{name} left out" for name in answer.left_out if name not in measured]
        rows.append((f"{answer.name}: {answer.question.what}, {unit}", "; ".join(told)))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def publish(page: Path, tables: Mapping[str, str]) -> list[str]:
    """Put each table between its marks in `page`; return the names of those that have a place."""
    text, placed = page.read_text(), []
    for name, table in tables.items():
        begin, end = (mark.format(name) for mark in MARKS)
        head, found, rest = text.partition(begin)
        _, closed, tail = rest.partition(end)
        if found and closed:
            text = f"{head}{begin}\n\n{table}\n\n{end}{tail}"
            placed.append(name)
    if placed:
        page.write_text(text)
    return placed


def figure(number: float) -> str:
    """Return a number with as many digits as a reader can use."""
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}" if abs(number) < 10 else f"{number:.1f}"


def _with_range(found: Summary) -> str:
    return f"{figure(found.median)} [{figure(found.low)} … {figure(found.high)}]"


def _answer_record(answer: Answer) -> dict[str, Any]:
    claims = []
    for claim in answer.claims():
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
        "left_out": answer.left_out,
        "claims": claims,
    }

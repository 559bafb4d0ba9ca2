"""Records as tables: of plain text for whoever waits, of Markdown for the docs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.record import Record
from bench.summary import Summary

HEADINGS = ("question", "claim", "figure", "range", "bar", "verdict")
COMMAND = "python -m bench --publish"
MARKS = "<!-- {0}: written by `{1}`, not by hand -->", "<!-- /{0} -->"

Row = tuple[str, ...]


def rows_of(record: Record) -> list[Row]:
    """Return one row per claim; the question is named in the first."""
    return [
        (
            record.name if number == 0 else "",
            claim.text,
            figure(claim.median),
            f"{figure(claim.low)} … {figure(claim.high)}",
            claim.bar,
            record.verdict(claim).value,
        )
        for number, claim in enumerate(record.claims)
    ]


def sides_of(record: Record) -> str:
    """Return what each side measured, in one line."""
    before, after = record.load
    told = [f"{side} {_with_range(found)} {record.unit}" for side, found in _sides(record)]
    took = f"took {record.in_all_s:.0f} s"
    lines = [f"{'; '.join(told)}  ({took}; load {before:.1f} → {after:.1f})"]
    lines += [f"left out: {side}: {why}" for side, why in record.left_out.items()]
    return "\n  ".join(lines)


def as_text(records: Sequence[Record]) -> str:
    """Return the claims as a table of plain text."""
    table = [HEADINGS, *(row for record in records for row in rows_of(record))]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def claims_as_markdown(records: Sequence[Record]) -> str:
    """Return the claims as a table of Markdown, below when and where they were measured."""
    rows = [row for record in records for row in rows_of(record)]
    return f"{_when_and_where(records)}\n\n{as_table([HEADINGS, *rows])}"


def sides_as_markdown(records: Sequence[Record]) -> str:
    """Return what every side measured, as a table of Markdown."""
    rows: list[Row] = [("question", "what each side took")]
    for record in records:
        told = [f"{side} {figure(found.median)}" for side, found in _sides(record)]
        told += [f"{name} left out" for name in record.left_out if name not in record.sides]
        rows.append((f"{record.name}: {record.what}, {record.unit}", "; ".join(told)))
    return as_table(rows)


def as_table(rows: Sequence[Row]) -> str:
    """Return rows, of which the first are headings, as a table of Markdown."""
    heading, *others = rows
    return "\n".join(
        "| " + " | ".join(r) + " |" for r in [heading, ("---",) * len(heading), *others]
    )


def publish(page: Path, tables: Mapping[str, str], command: str = COMMAND) -> list[str]:
    """Put each table between its marks in `page`; return the names of those that have a place."""
    text, placed = page.read_text(), []
    for name, table in tables.items():
        begin, end = (mark.format(name, command) for mark in MARKS)
        head, found, rest = text.partition(begin)
        _, closed, tail = rest.partition(end)
        if found and closed:
            text = f"{head}{begin}\n\n{table}\n\n{end}{tail}"
            placed.append(name)
    if placed:
        new = page.with_name(f".{page.name}.new")
        new.write_text(text)
        os.replace(new, page)
    return placed


def figure(number: float) -> str:
    """Return a number with as many digits as a reader can use."""
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}" if abs(number) < 10 else f"{number:.1f}"


def _sides(record: Record) -> list[tuple[str, Summary]]:
    found = [(side, record.of_figure(side)) for side in record.sides]
    return [(side, summary) for side, summary in found if summary is not None]


def _with_range(found: Summary) -> str:
    return f"{figure(found.median)} [{figure(found.low)} … {figure(found.high)}]"


def _when_and_where(records: Sequence[Record]) -> str:
    """Say of each day and machine which questions were asked there, the last ones first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for record in records:
        facts = "; ".join(f"{name} {said}" for name, said in record.machine.items())
        groups.setdefault((record.measured, facts), []).append(record.name)
    if len(groups) == 1:
        [(day, facts)] = groups
        return f"Measured on {day}, on: {facts}."
    return "\n".join(
        f"- Measured on {day}, on: {facts}: {', '.join(f'`{name}`' for name in names)}."
        for (day, facts), names in sorted(groups.items(), reverse=True)
    )

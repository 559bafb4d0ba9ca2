"""Printing for the commands: tables for people, one JSON object for programs.

Names, metrics and errors come from records that anyone may have written. Everything is printed by
`say`, so that no such text moves the cursor of a terminal, sets its title or rings its bell, and
so that characters the locale cannot encode are escaped, not lost or fatal.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from holdfast.core.log_lines import plain, shown_plainly
from holdfast.core.plain_data import as_strict_json
from holdfast.core.quantities import duration

EXIT_DAMAGED = 1
EXIT_UNUSABLE = 3


def say(text: str = "", *, err: bool = False) -> None:
    """Print lines without control characters; what cannot be encoded is escaped."""
    _print("\n".join(map(plain, text.split("\n"))), err=err)


def say_printed(line: str) -> None:
    """Print a line of a process's output; on a terminal, it keeps its colours."""
    clean = shown_plainly(line.expandtabs(8), keeps_colour=sys.stdout.isatty())
    _print("".join(char if char.isprintable() or char == "\x1b" else "?" for char in clean))


def _print(text: str, *, err: bool = False) -> None:
    encoding = getattr(sys.stderr if err else sys.stdout, "encoding", None) or "utf-8"
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=err)


def print_json(value: object) -> None:
    """Print one object as strict JSON: NaN and infinity become strings."""
    _print(json.dumps(as_strict_json(value), indent=2, allow_nan=False))


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows in columns as wide as they need to be."""
    texts = [[plain(str(cell)) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in texts) for i in range(len(header))]
    for row in texts:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, one pair per line."""
    width = max(map(len, facts))
    for name, value in facts.items():
        say(f"{name:>{width}}  {plain(str(value))}")


def problem_lines(problems: Sequence[str], url: str) -> list[str]:
    """Return a line for each problem of the run at `url`, and one with what to try."""
    lines = [f"  ! {problem}" for problem in problems]
    return [*lines, f"  Try: holdfast verify {url}"] if lines else []


def size(count: int) -> str:
    """Return a number of bytes in a readable unit: 12 B, 3.4 kB, 256 MB."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    digits = 0 if unit == "B" or amount >= 100 else 1
    return f"{amount:.{digits}f} {unit}"


def age(then: float) -> str:
    """Return the time since `then`: 12 s, 5 min, 3 h, 2 d."""
    return duration(int(time.time() - then))


def metrics(values: Mapping[str, Any], most: int = 4) -> str:
    """Return a few metrics on one line."""
    shown = [f"{name}={_short(value)}" for name, value in list(values.items())[:most]]
    return " ".join(shown) + (" …" if len(values) > most else "")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    try:
        return str(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of 5,000 digits
        return "…"

"""Puts figures into the docs: those of this run, and those kept of questions it did not ask.

What is published is kept as records in a file beside the bench, so that a run of some questions
replaces those alone, and the page says of each when and where it was measured.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import chart, headline, record, report
from bench.record import Record

ROOT = Path(__file__).parent.parent
KEPT = Path(__file__).parent / "published.json"
PAGES = (ROOT / "docs" / "performance.md", ROOT / "README.md")
PICTURE = ROOT / "docs" / "performance.svg"


def publish(
    records: Sequence[Record],
    order: Sequence[str],
    *,
    pages: Sequence[Path] = PAGES,
    kept: Path = KEPT,
    picture: Path = PICTURE,
) -> list[str]:
    """Put these records in the place of older ones; return what was written, one line each.

    Questions that are not in `order` are no longer asked, and go.
    """
    if quick := [one.name for one in records if one.is_quick]:
        raise ValueError(f"only a full run is published; quick: {', '.join(quick)}")
    before = record.read(kept) if kept.exists() else []
    everything = record.merged(before, map(_fit_to_print, records), order)
    record.write(kept, everything)
    picture.write_text(chart.as_svg(everything))
    written = [f"{kept.name}: {len(everything)} questions, {len(records)} of them new"]
    for page in pages:
        tables = {
            "chart": f"![{chart.as_words(everything)}]({_from(page, picture)})",
            "headline": headline.as_markdown(everything),
            "measured": report.claims_as_markdown(everything),
            "sides": report.sides_as_markdown(everything),
        }
        placed = report.publish(page, tables)
        written.append(f"{page.name}: {', '.join(placed) or 'has no place for a table'}")
    return written


def _fit_to_print(found: Record) -> Record:
    """Return the record without what a peer printed when it failed: paths, most of all."""
    said = {side: why.partition("\n")[0] for side, why in found.left_out.items()}
    return replace(found, left_out=said)


def _from(page: Path, picture: Path) -> str:
    return Path(os.path.relpath(picture, page.parent)).as_posix()

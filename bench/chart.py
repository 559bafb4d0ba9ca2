"""The headline as a picture: how many times Holdfast's figure each other system needs.

A bar to the right of the line says that the other one takes that many times longer (or more memory,
or finishes that many times fewer trials); a bar to the left, that it is ahead. The scale is
logarithmic, so that a factor is as long wherever it stands. It is an SVG of our own making, with
its own background, in the colours of the reader's light or dark mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bench.headline import LINES, Line, median
from bench.record import Record

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 860, 240, 96, 84, 72
BAR, GAP, BETWEEN = 12, 2, 14
KINDS = (("plain", "torchrun, plain torch, Optuna"), ("ray", "Ray Train, Ray Tune"))
NOTE = (
    "Ray's report and saves: with its polling turned down from 2 s to 1 ms, and not synced to disk."
)
STYLE = """
 .page { fill: #fcfcfb } .ink { fill: #1f1f1d } .quiet { fill: #63625c }
 .grid { stroke: #e4e3de } .one { stroke: #1f1f1d }
 .plain { fill: #2a78d6 } .ray { fill: #d9622b }
 @media (prefers-color-scheme: dark) {
  .page { fill: #1a1a19 } .ink { fill: #f1f0ea } .quiet { fill: #a8a79f }
  .grid { stroke: #35352f } .one { stroke: #f1f0ea }
  .plain { fill: #4a90e8 } .ray { fill: #e5763f }
 }
 text { font: 13px system-ui, sans-serif } .title { font-size: 16px; font-weight: 600 }
 .small { font-size: 12px }
"""


@dataclass(frozen=True)
class Group:
    """A line of the headline: of each other system, how many times Holdfast's figure it needs."""

    text: str
    ratios: Sequence[tuple[str, float]]


def groups_of(records: Sequence[Record]) -> list[Group]:
    """Return what there is to show, in the order of the headline."""
    asked = {record.name: record for record in records}
    found = [
        Group(line.chart, _ratios(asked[line.question], line))
        for line in LINES
        if line.chart and line.question in asked
    ]
    return [group for group in found if group.ratios]


def _ratios(record: Record, line: Line) -> list[tuple[str, float]]:
    ours = median(record, line.ours, line.kind)
    theirs = [(kind, median(record, getattr(line, kind), line.kind)) for kind, _ in KINDS]
    if not ours:
        return []
    ratios = [(kind, figure / ours) for kind, figure in theirs if figure]
    return [(kind, 1 / ratio if line.more_is_better else ratio) for kind, ratio in ratios]


def as_svg(records: Sequence[Record]) -> str:
    """Return the picture; without any figure to show, a picture that says so."""
    groups = groups_of(records)
    ratios = [ratio for group in groups for _, ratio in group.ratios]
    low = 0.8 * min([*ratios, 0.8])
    high = 10 ** math.ceil(math.log10(max([*ratios, 10])))
    heights = [len(group.ratios) * (BAR + GAP) + BETWEEN for group in groups]
    height = TOP + sum(heights) + BOTTOM
    parts = [*_head(height), *_grid(low, high, height - BOTTOM)]
    top = float(TOP)
    for group, tall in zip(groups, heights, strict=True):
        parts += _group(group, top, low, high)
        top += tall
    x = _x(1, low, high)
    parts.append(f'<path class="one" d="M{x:.1f} {TOP - 8}V{height - BOTTOM}"/>')
    parts.append(_text(x, height - BOTTOM + 36, "ink small", "Holdfast = 1", anchor="middle"))
    parts.append(_text(24, height - 12, "quiet small", NOTE))
    return "\n".join([*parts, "</svg>", ""])


def as_words(records: Sequence[Record]) -> str:
    """Return what the picture shows, for those who cannot see it."""
    names = {"plain": "plain", "ray": "Ray"}
    told = [
        f"{group.text}: "
        + ", ".join(f"{names[kind]} {_times(ratio)}" for kind, ratio in group.ratios)
        for group in groups_of(records)
    ]
    return "How many times what Holdfast needs: " + "; ".join(told)


def _head(height: int) -> list[str]:
    keys, x = [], float(LEFT)
    for kind, text in KINDS:
        keys.append(f'<rect class="{kind}" x="{x}" y="44" width="12" height="12" rx="2"/>')
        keys.append(_text(x + 18, 55, "quiet small", text))
        x += 215
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
        _text(24, 30, "ink title", "How many times more the others need: time, or memory"),
        *keys,
    ]


def _grid(low: float, high: float, bottom: float) -> list[str]:
    parts = []
    for power in range(math.ceil(math.log10(low)), round(math.log10(high)) + 1):
        x = _x(10.0**power, low, high)
        parts.append(f'<path class="grid" d="M{x:.1f} {TOP - 8}V{bottom}"/>')
        parts.append(_text(x, bottom + 18, "quiet small", _times(10.0**power), anchor="middle"))
    return parts


def _group(group: Group, top: float, low: float, high: float) -> list[str]:
    middle = top + len(group.ratios) * (BAR + GAP) / 2
    parts = [_text(LEFT - 14, middle + 4, "ink", group.text, anchor="end")]
    one = _x(1, low, high)
    for number, (kind, ratio) in enumerate(group.ratios):
        y, x = top + number * (BAR + GAP), _x(ratio, low, high)
        start, width = min(one, x), max(abs(x - one), 1.0)
        parts.append(
            f'<rect class="{kind}" x="{start:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{BAR}" rx="2"/>'
        )
        parts.append(_text(max(one, x) + 6, y + BAR - 2, "ink small", _times(ratio)))
    return parts


def _x(ratio: float, low: float, high: float) -> float:
    share = math.log10(ratio / low) / math.log10(high / low)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 10 else f"{ratio:.2g}×"


def _text(x: float, y: float, style: str, text: str, *, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{style}" {place}>{escape(text)}</text>'

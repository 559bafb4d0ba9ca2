"""The few figures that a reader of the README wants, in seconds and bytes, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.runner import Answer
from bench.summary import Summary

HEADINGS = ("", "Holdfast", "plain torch", "Ray Train")
NOTHING = "–"


@dataclass(frozen=True)
class Line:
    """A row of the table: which side of which question stands in which column, "" for none."""

    text: str
    question: str
    ours: str
    torch: str
    ray: str


LINES = (
    Line("launch, until 2 workers train", "launch", "holdfast", "torchrun", "ray"),
    Line(
        "a worker is killed, until both train again with 100 MB loaded",
        "recovery-worker",
        "holdfast",
        "torchrun",
        "ray",
    ),
    Line("`report` of metrics", "report-metrics", "holdfast", "", "ray"),
    Line("`report` of 1 KB, durable", "report-checkpoint", "holdfast", "", "ray-tuned"),
    Line(
        "256 MB saved and durable, time the loop waits",
        "blocked-disk",
        "holdfast",
        "write+fsync",
        "ray-tuned",
    ),
    Line(
        "the same in the background, time the loop waits",
        "blocked-disk",
        "holdfast-async",
        "dcp-async",
        "",
    ),
    Line("memory of 2 idle workers", "memory", "holdfast", "torchrun", "ray"),
)


def as_markdown(answers: Sequence[Answer]) -> str:
    """Return a table of medians; a line whose question was not asked is left out."""
    asked = {answer.name: answer for answer in answers}
    rows = [
        (
            line.text,
            *(_cell(asked[line.question], side) for side in (line.ours, line.torch, line.ray)),
        )
        for line in LINES
        if line.question in asked
    ]
    table = [HEADINGS, ("---",) * len(HEADINGS), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in table)


def _cell(answer: Answer, side: str) -> str:
    figures = [measured[side] for measured in answer.rounds if side in measured]
    if not figures:
        return NOTHING
    return amount(Summary.of(figures).median, answer.question.unit) + _remark(side)


def _remark(side: str) -> str:
    return {
        "torchrun": " (torchrun)",
        "write+fsync": " (write and fsync)",
        "dcp-async": " (DCP async)",
        "ray-tuned": " (polling every 1 ms; not durable)",
    }.get(side, "")


_STEPS: Mapping[str, float] = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}


def amount(figure: float, unit: str) -> str:
    """Return a figure in the unit that suits its size, with two or three digits."""
    if unit in _STEPS:
        seconds = figure * _STEPS[unit]
        unit = next((name for name in ("s", "ms") if seconds >= _STEPS[name]), "µs")
        figure = seconds / _STEPS[unit]
    digits = 0 if figure >= 100 else 1 if figure >= 10 else 2
    return f"{figure:,.{digits}f} {unit}"

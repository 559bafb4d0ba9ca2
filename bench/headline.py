"""The few figures that a reader of the README wants, in seconds and bytes, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.record import Record
from bench.report import Row, as_table

HEADINGS = ("", "Holdfast", "plain torch, or Optuna", "Ray")
NOTHING = "–"


@dataclass(frozen=True)
class Line:
    """A row of the table: which side of which question stands in which column, "" for none.

    Attributes:
        chart: What the chart calls it; "" if it is not in the chart.
        more_is_better: Whether a side is ahead that has more of it, not less.
        kind: Which of a side's figures is shown, "" for the main one.
        unit: What it is in, "" for the unit of the question.
        beside: A second figure of each side, shown after the first.
        of: The figure of each side that is the whole, where a share of it is shown.
        but: What must be said of the last column.
    """

    text: str
    question: str
    ours: str
    plain: str = ""
    ray: str = ""
    chart: str = ""
    more_is_better: bool = False
    kind: str = ""
    unit: str = ""
    beside: str = ""
    of: str = ""
    but: str = ""

    @property
    def sides(self) -> tuple[str, str, str]:
        return self.ours, self.plain, self.ray


LINES = (
    Line(
        "launch, until 2 workers train",
        "launch",
        "holdfast",
        "torchrun",
        "ray",
        chart="launch of 2 workers",
    ),
    Line(
        "a worker is killed, until both train again with 100 MB loaded",
        "recovery-worker",
        "holdfast",
        "torchrun",
        "ray",
        chart="recovery of a killed worker",
    ),
    Line(
        "the driver is killed and started again, to the same point",
        "recovery-driver",
        "holdfast",
        "torchrun",
        "ray",
        chart="recovery of a killed driver",
    ),
    Line(
        "ten minutes, a worker killed about once in each: steps that count, of all without a kill",
        "goodput-10min",
        "holdfast",
        "torchrun",
        "ray",
        of="undisturbed",
    ),
    Line(
        "work that is done again after a kill of the driver",
        "redone",
        "holdfast",
        "torchrun",
        "ray",
    ),
    Line(
        "`report` of metrics",
        "report-metrics",
        "holdfast",
        "",
        "ray-tuned",
        chart="report of metrics",
    ),
    Line(
        "`report` of 1 KB, durable",
        "report-checkpoint",
        "holdfast",
        "",
        "ray-tuned",
        chart="report of 1 KB, durable",
        but=", not durable",
    ),
    Line(
        "256 MB that `torch.save` has written, until `report` has made them durable",
        "blocked-disk",
        "holdfast",
        "write+fsync",
        "ray-tuned",
        chart="report of 256 MB, durable",
        but=", not durable",
    ),
    Line(
        "the same in the background, time the loop waits for `report`",
        "blocked-disk",
        "holdfast-async",
        "dcp-async",
        chart="the same in the background",
    ),
    Line(
        "trials that report once, a process for each",
        "tune-trials",
        "holdfast",
        "optuna-sqlite",
        "ray",
        chart="trials, a process each",
        more_is_better=True,
    ),
    Line(
        "the same with processes that are reused",
        "tune-trials",
        "holdfast-reused",
        "optuna-journal",
        "ray-reused",
        chart="trials, processes reused",
        more_is_better=True,
    ),
    Line(
        "trials of a class, 10 steps, each with a checkpoint",
        "tune-classes",
        "holdfast",
        "optuna-sqlite",
        "ray",
        chart="class trials with checkpoints",
        more_is_better=True,
    ),
    Line(
        "restore of a study of 1,000 + 50 trials, until a trial runs",
        "tune-restore",
        "holdfast",
        "optuna-sqlite",
        "ray",
        chart="restore of 1,000 + 50 trials",
    ),
    Line(
        "memory of 2 idle workers",
        "memory",
        "holdfast",
        "torchrun",
        "ray",
        chart="memory of 2 idle workers",
        beside="processes",
    ),
    Line(
        "memory of the driver of a study, after 100,000 trials",
        "tune-scale",
        "after 100,000",
        kind="memory",
        unit="MB",
    ),
)


def as_markdown(records: Sequence[Record]) -> str:
    """Return a table of medians; a line whose question was not asked is left out."""
    asked = {record.name: record for record in records}
    rows: list[Row] = [_row(asked[line.question], line) for line in LINES if line.question in asked]
    return as_table([HEADINGS, *rows])


def _row(record: Record, line: Line) -> Row:
    ours, plain, ray = (_cell(record, line, side) for side in line.sides)
    return line.text, ours, plain, ray if ray == NOTHING else ray + line.but


def _cell(record: Record, line: Line, side: str) -> str:
    found = median(record, side, line.kind)
    if found is None:
        return NOTHING
    if line.of:
        whole = median(record, side, line.of)
        return NOTHING if not whole else f"{100 * found / whole:.0f} %{_REMARKS.get(side, '')}"
    text = amount(found, line.unit or record.unit)
    beside = median(record, side, line.beside) if line.beside else None
    if beside is not None:
        text += f" in {beside:.0f} {line.beside}"
    return text + _REMARKS.get(side, "")


def median(record: Record, side: str, kind: str = "") -> float | None:
    """Return the median of a side's figure, None if it was not measured."""
    found = record.of_figure(f"{side} {kind}".rstrip()) if side else None
    return None if found is None else found.median


_REMARKS: Mapping[str, str] = {
    "torchrun": " (torchrun)",
    "write+fsync": " (write and fsync)",
    "dcp-async": " (DCP async)",
    "optuna-journal": " (Optuna's journal, one process)",
    "optuna-sqlite": " (Optuna on SQLite, one process)",
    "ray-tuned": " (polling every 1 ms)",
}
_STEPS: Mapping[str, float] = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}


def amount(figure: float, unit: str) -> str:
    """Return a figure in the unit that suits its size, with two or three digits."""
    if unit in _STEPS:
        seconds = figure * _STEPS[unit]
        unit = next((name for name in ("s", "ms") if seconds >= _STEPS[name]), "µs")
        figure = seconds / _STEPS[unit]
    digits = 0 if figure >= 100 else 1 if figure >= 10 else 2
    return f"{figure:,.{digits}f} {unit}"

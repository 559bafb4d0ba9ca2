"""Tables and lines on the progress of a study, as data and text: no terminal, no clock.

Rows are trials; if there are too many, every status gets its fair share of the rows, and the others
are counted.
"""

from __future__ import annotations

import html
import math
import numbers
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from holdfast.core.checkpoint.retention import score_of
from holdfast.core.log_lines import plain
from holdfast.core.metric_history import flattened
from holdfast.core.quantities import elapsed
from holdfast.core.study.trial import Status, Trial
from holdfast.tune.result import (
    AUTO_RESULT_KEYS,
    NODE_IP,
    PID,
    TIME_TOTAL_S,
    TIMESTEPS_TOTAL,
    TRAINING_ITERATION,
)

ORDER = (Status.RUNNING, Status.PAUSED, Status.PENDING, Status.TERMINATED, Status.ERROR)
BASE_METRICS = {TRAINING_ITERATION: "iter", TIME_TOTAL_S: "total time (s)", TIMESTEPS_TOTAL: "ts"}
_TEXT_MAX = 200

Columns: TypeAlias = Mapping[str, str] | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Table:
    """Titles, rows of texts, and a note on rows that are left out ('' for none)."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Best:
    """The best trial so far."""

    name: str
    metric: str
    value: float
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A study at one moment.

    Attributes:
        trials: The trials to show: at least all that are not over.
        counts: How many trials have each status, including those not in `trials`; empty if `trials`
            are all.
        total: How many there will be, None if that is not known.
        elapsed_s: How long the study has run, over all drivers.
        now: Seconds since 1970.
        resources: The resources in use, as text.
        best: The best trial so far, None if it is not known.
        notes: Further lines.
    """

    trials: Sequence[Trial]
    counts: Mapping[str, int] = field(default_factory=dict)
    total: int | None = None
    elapsed_s: float = 0.0
    now: float = 0.0
    resources: str = ""
    best: Best | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a table of trials shows.

    Attributes:
        parameters: Which parameters, or None for those searched for.
        metrics: Which metrics, or None for the usual ones and a few of those reported.
        rows_max: How many trials; None for all.
        width_max: The longest text.
        infer_max: How many reported metrics are picked.
        sort_by: The metric to sort rows by, best first; None does not sort.
        mode: Whether the highest ("max") or lowest values are best.
    """

    parameters: Columns = None
    metrics: Columns = None
    rows_max: int | None = 20
    width_max: int = 20
    infer_max: int = 3
    sort_by: str | None = None
    mode: str = "max"


# ---------------------------------------------------------------------- lines


def counts_of(trials: Iterable[Trial]) -> dict[str, int]:
    """Return how many trials have each status."""
    return dict(Counter(str(trial.status) for trial in trials))


def status_line(counts: Mapping[str, int], total: int | None = None) -> str:
    """Return `Trials: 2 of 8 done (1 RUNNING, …)`: how many have each status.

    `total` is how many there will be; if it is None, those so far are counted.
    """
    ended = counts.get(Status.TERMINATED, 0) + counts.get(Status.ERROR, 0)
    of = f"{total}" if total is not None else f"{sum(counts.values())} so far"
    return f"Trials: {ended} of {of} done ({_counted(counts) or 'none yet'})"


def _counted(counts: Mapping[str, int]) -> str:
    in_order = {**dict.fromkeys(map(str, ORDER), 0), **counts}
    return ", ".join(f"{count} {name}" for name, count in in_order.items() if count)


def best_of(trials: Iterable[Trial], metric: str | None, mode: str | None) -> Best | None:
    """Return the best of trials by their last value, the first of equals."""
    if metric is None or mode is None:
        return None
    best: Best | None = None
    for trial in trials:
        value = score_of(trial.last_result, metric)
        if value is None or math.isnan(value):
            continue
        if best is None or (value > best.value if mode == "max" else value < best.value):
            parameters = trial.evaluated_params or trial.config
            best = Best(str(trial), metric, value, parameters)
    return best


def best_line(best: Best) -> str:
    """Return one line on the best trial."""
    values = ", ".join(
        f"{name}={cell(value)}" for name, value in flattened(best.parameters).items()
    )
    parameters = shortened(f" with {values}", 120) if values else ""
    return f"Best so far: {best.name}, {best.metric}={cell(best.value)}{parameters}"


def cell(value: Any, width: int = _TEXT_MAX) -> str:
    """Return a value as a table shows it."""
    if value is None:
        return ""
    if isinstance(value, numbers.Real) and not isinstance(value, bool | int):
        number = float(value)
        return f"{number:.0f}" if number.is_integer() and abs(number) < 1e6 else f"{number:.5g}"
    return shortened(str(value).replace("\n", " "), width)


def shortened(text: str, width: int) -> str:
    """Return a text of at most `width`, cut in the middle: values differ at their ends."""
    if len(text) <= width:
        return text
    keep = max(1, width - 1)
    return f"{text[: (keep + 1) // 2]}…{text[len(text) - keep // 2 :]}"


# ---------------------------------------------------------------------- which rows


def fair_shares(sizes: Mapping[str, int], room: int) -> dict[str, int]:
    """Return how many of each to show: equally many, and unused shares go to the others."""
    shares = dict.fromkeys(sizes, 0)
    left = max(0, room)
    while left:
        unfilled = [name for name in sizes if shares[name] < sizes[name]]
        if not unfilled:
            break
        share = max(1, left // len(unfilled))
        for name in unfilled:
            added = min(share, sizes[name] - shares[name], left)
            shares[name] += added
            left -= added
    return shares


def chosen(progress: Progress, layout: Layout) -> tuple[list[Trial], str]:
    """Return the trials to show, by status, and a note on the others."""
    by_status: dict[str, list[Trial]] = {str(status): [] for status in ORDER}
    for trial in progress.trials:
        by_status.setdefault(str(trial.status), []).append(trial)
    for trials in by_status.values():
        trials.sort(key=_sort_key(layout))
    sizes = {name: len(trials) for name, trials in by_status.items() if trials}
    shares = fair_shares(
        sizes, len(progress.trials) if layout.rows_max is None else layout.rows_max
    )
    shown = [trial for name, share in shares.items() for trial in by_status[name][:share]]
    hidden = {
        name: count - shares.get(name, 0)
        for name, count in {**sizes, **progress.counts}.items()
        if count > shares.get(name, 0)
    }
    if not hidden:
        return shown, ""
    return shown, f"… {sum(hidden.values())} more trials not shown ({_counted(hidden)})"


def _sort_key(layout: Layout) -> Callable[[Trial], tuple[int, float, int]]:
    def key(trial: Trial) -> tuple[int, float, int]:
        value = score_of(trial.last_result, layout.sort_by) if layout.sort_by else None
        if value is None or math.isnan(value):
            return int(layout.sort_by is not None), 0.0, trial.number
        return 0, -value if layout.mode == "max" else value, trial.number

    return key


# ---------------------------------------------------------------------- columns


def trial_table(progress: Progress, layout: Layout | None = None) -> Table:
    """Return a table of trials: name, status, place, parameters, iteration, time, metrics."""
    layout = layout if layout is not None else Layout()
    shown, note = chosen(progress, layout)
    parameters = _named(layout.parameters, _searched(shown))
    metrics = _named(layout.metrics, BASE_METRICS)
    if layout.metrics is None:
        metrics |= {name: name for name in inferred_metrics(shown, layout.infer_max)}
    width = layout.width_max
    columns: list[tuple[str, list[str]]] = [
        ("trial", [shortened(str(trial), max(width, 30)) for trial in shown]),
        ("status", [str(trial.status) for trial in shown]),
        ("loc", [_location(trial) for trial in shown]),
    ]
    for name, title in parameters.items():
        values = [_parameter(trial, name) for trial in shown]
        columns.append((title, [cell(value, width) for value in values]))
    for name, title in metrics.items():
        values = [flattened(trial.last_result).get(name) for trial in shown]
        columns.append((title, [cell(value, width) for value in values]))
    columns.append(("checkpoint", [_checkpoint_age(trial, progress.now) for trial in shown]))
    columns.append(("failures", [cell(trial.failures() or None) for trial in shown]))
    filled = [(title, cells) for title, cells in columns if any(cells)]
    rows = tuple(zip(*(cells for _, cells in filled), strict=True))
    return Table(tuple(title for title, _ in filled), rows, note)


def inferred_metrics(trials: Iterable[Trial], limit: int) -> list[str]:
    """Return metrics to show by default: numbers that users report, in order of reporting."""
    names: dict[str, None] = {}
    for trial in trials:
        for name, value in flattened(trial.last_result).items():
            is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if is_number and name.partition("/")[0] not in AUTO_RESULT_KEYS:
                names[name] = None
        if len(names) >= limit:
            break
    return list(names)[: max(0, limit)]


def error_table(
    trials: Iterable[Trial], rows_max: int | None = 20, width_max: int = 80, count: int = 0
) -> Table:
    """Return a table of failed trials, with how often and why each failed.

    `count` is how many there are, if not all of them are in `trials`.
    """
    failed = [trial for trial in trials if trial.status is Status.ERROR]
    shown = failed if rows_max is None else failed[:rows_max]
    rows = tuple(
        (str(trial), cell(trial.failures() or 1), shortened(error_line(trial.error), width_max))
        for trial in shown
    )
    hidden = max(count, len(failed)) - len(shown)
    note = f"… {hidden} more trials have failed" if hidden else ""
    return Table(("trial", "failures", "error"), rows, note)


def _named(given: Columns, default: Mapping[str, str]) -> dict[str, str]:
    if given is None:
        return dict(default)
    if isinstance(given, Mapping):
        return dict(given)
    return {name: name for name in given}


def _searched(trials: Iterable[Trial]) -> dict[str, str]:
    titles: dict[str, str] = {}
    for trial in trials:
        for name in trial.evaluated_params:
            titles.setdefault(name, name.rpartition("/")[2] if "/" in name else name)
    # Names that end alike are shown whole.
    ends = list(titles.values())
    return {name: end if ends.count(end) == 1 else name for name, end in titles.items()}


def _parameter(trial: Trial, name: str) -> Any:
    if name in trial.evaluated_params:
        return trial.evaluated_params[name]
    return flattened(trial.config).get(name)


def _location(trial: Trial) -> str:
    if trial.status is not Status.RUNNING:
        return ""
    node, pid = trial.last_result.get(NODE_IP), trial.last_result.get(PID)
    return f"{node}:{pid}" if node and pid else str(node or "")


def _checkpoint_age(trial: Trial, now: float) -> str:
    times = [checkpoint.created for checkpoint in trial.checkpoints.usable()]
    newest = max(times, default=None)
    return "" if newest is None else f"{elapsed(now - newest)} ago"


def error_line(error: str | None) -> str:
    """Return the line of an error that names it: the first, or the first below a traceback."""
    lines = [line for line in (error or "").splitlines() if line.strip()]
    if lines and lines[0].startswith("Traceback"):
        lines = [line for line in lines[1:] if not line[0].isspace()] or lines[-1:]
    return lines[0].strip() if lines else "failed"


# ---------------------------------------------------------------------- forms


def as_text(table: Table) -> str:
    """Return a table as plain text, ruled with dashes, without control characters in it."""
    if not table.titles:
        return table.note
    table = Table(
        tuple(map(plain, table.titles)),
        tuple(tuple(map(plain, row)) for row in table.rows),
        table.note,
    )
    widths = [
        max(len(title), *(len(row[place]) for row in table.rows)) if table.rows else len(title)
        for place, title in enumerate(table.titles)
    ]
    rule = tuple("-" * width for width in widths)
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in (table.titles, rule, *table.rows)
    ]
    return "\n".join([*lines, *([table.note] if table.note else [])])


def as_html(table: Table) -> str:
    """Return a table as HTML."""
    head = "".join(f"<th>{html.escape(title)}</th>" for title in table.titles)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>"
        for row in table.rows
    )
    note = f"<p>{html.escape(table.note)}</p>" if table.note else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def header_lines(
    progress: Progress, metric: str | None = None, mode: str | None = None
) -> list[str]:
    """Return the lines above the table: counts, time, resources, the best trial."""
    lines = [
        status_line(progress.counts or counts_of(progress.trials), progress.total)
        + f", running for {elapsed(progress.elapsed_s)}"
    ]
    if progress.resources:
        lines.append(progress.resources)
    best = progress.best or best_of(progress.trials, metric, mode)
    if best is not None:
        lines.append(best_line(best))
    return [*lines, *progress.notes]

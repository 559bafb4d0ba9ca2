"""The checkpoints of a run or a trial in `holdfast show`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from holdfast.cli.output import age, metrics, print_table, say

if TYPE_CHECKING:
    from holdfast.control.record.run_view import RunView
    from holdfast.core.checkpoint.record import Kept, RunRecord


def checkpoint_facts(record: RunRecord) -> list[dict[str, object]]:
    """Return the facts of all checkpoints, oldest first."""
    return [
        {
            "directory": entry.directory,
            "number": entry.number,
            "step": entry.step,
            "attempt": entry.attempt,
            "created": entry.created,
            "metrics": entry.metrics,
            "pins": list(entry.pins),
            "quarantined": list(entry.problems),
        }
        for entry in _oldest_first(record)
    ]


def checkpoint_problems(view: RunView) -> Iterator[str]:
    """Yield a line for each checkpoint that is unreadable or quarantined."""
    yield from (f"{folder}: {reason}" for folder, reason in view.unreadable.items())
    for entry in view.record.quarantined():
        yield f"{entry.directory}: {'; '.join(entry.problems)}"


def print_checkpoints(record: RunRecord, left_out: Collection[str] = ()) -> None:
    """Print a table of checkpoints, oldest first, without the metrics that are `left_out`."""
    rows = [
        (
            entry.directory,
            "-" if entry.step is None else entry.step,
            f"{age(entry.created)} ago",
            "quarantined" if entry.problems else "pinned" if entry.pins else "",
            metrics({k: v for k, v in entry.metrics.items() if k not in left_out}),
        )
        for entry in _oldest_first(record)
    ]
    if rows:
        print_table(("CHECKPOINT", "STEP", "SAVED", "", "METRICS"), rows)
    else:
        say("no checkpoints yet")


def _oldest_first(record: RunRecord) -> list[Kept]:
    return [record.kept[number] for number in sorted(record.kept)]

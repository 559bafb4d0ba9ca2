"""The checkpoints of a run or a trial, as `holdfast show` tells them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from holdfast.cli.output import age, metrics, print_table, say

if TYPE_CHECKING:
    from holdfast.core.checkpoint.record import RunRecord


def checkpoint_facts(record: RunRecord) -> list[dict[str, object]]:
    """Return all that is known of checkpoints, oldest first."""
    return [
        {
            "directory": kept.directory,
            "number": kept.number,
            "step": kept.step,
            "attempt": kept.attempt,
            "created": kept.created,
            "metrics": kept.metrics,
            "pins": list(kept.pins),
            "quarantined": list(kept.problems),
        }
        for kept in sorted(record.kept.values(), key=lambda kept: kept.number)
    ]


def print_checkpoints(record: RunRecord, left_out: Collection[str] = ()) -> None:
    """Print a table of checkpoints, oldest first, without the metrics that are `left_out`."""
    rows = [
        (
            kept.directory,
            "-" if kept.step is None else kept.step,
            f"{age(kept.created)} ago",
            "quarantined" if kept.problems else "pinned" if kept.pins else "",
            metrics({k: v for k, v in kept.metrics.items() if k not in left_out}),
        )
        for kept in sorted(record.kept.values(), key=lambda kept: kept.number)
    ]
    if rows:
        print_table(("CHECKPOINT", "STEP", "SAVED", "", "METRICS"), rows)
    else:
        say("no checkpoints yet")

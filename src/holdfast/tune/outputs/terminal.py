"""One live table on a terminal, drawn by rich where that is installed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from holdfast.clock import Clock
from holdfast.core.study.trial import Status
from holdfast.tune.outputs.tables import Layout, Progress, Table, trial_table

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from holdfast.tune.outputs.output import Screen

log = logging.getLogger(__name__)

FRAME_S = 0.25
ROWS_MIN = 3
_STYLES = {
    Status.RUNNING: "cyan",
    Status.TERMINATED: "green",
    Status.ERROR: "red",
    Status.PAUSED: "yellow",
}


def live_screen(stream: TextIO, clock: Clock) -> Screen | None:
    """Return a screen with a live table; None if rich is not installed."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    return LiveScreen(Console(file=stream), clock)


class LiveScreen:
    """A terminal: the table stays at the bottom, lines scroll by above it."""

    keeps_status = True

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console, self._clock = console, clock
        self._live: Live | None = None
        self._drawn_at = float("-inf")

    def print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, progress: Progress, layout: Layout, header: Sequence[str]) -> None:
        now = self._clock.monotonic()
        if now - self._drawn_at < FRAME_S:
            return
        self._drawn_at = now
        frame = self._frame(progress, layout, header)
        if self._live is None:
            from rich.live import Live

            # Drawn when we say so, by this thread: nothing is left running if the study ends badly.
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(frame, refresh=True)

    def close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _frame(self, progress: Progress, layout: Layout, header: Sequence[str]) -> RenderableType:
        from dataclasses import replace

        from rich.console import Group
        from rich.text import Text

        room = max(ROWS_MIN, self._console.height - len(header) - 5)
        rows = room if layout.rows_max is None else min(room, layout.rows_max)
        table = trial_table(progress, replace(layout, rows_max=rows))
        note = [Text(table.note, no_wrap=True)] if table.note else []
        return Group(*(Text(line, no_wrap=True) for line in header), rich_table(table), *note)


def rich_table(table: Table) -> RenderableType:
    """Return a table as rich draws it."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in table.titles:
        drawn.add_column(Text(title), no_wrap=True, overflow="ellipsis")
    for row in table.rows:
        drawn.add_row(*(Text(text, style=_STYLES.get(text, "")) for text in row))  # type: ignore[call-overload]
    return drawn

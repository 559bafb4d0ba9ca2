"""Screens that show the progress of a study: a terminal, a notebook, or plain lines of text."""

from __future__ import annotations

import contextlib
import html
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.core.study.trial import Status
from holdfast.tune.outputs.tables import Layout, Progress, Table, as_html, as_text, trial_table

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

log = logging.getLogger(__name__)

TERMINAL_FRAME_S = 0.25
TERMINAL_ROWS_MIN = 3
NOTEBOOK_FRAME_S = 1.0
NOTEBOOK_LINES_MAX = 50
_STYLES = {
    Status.RUNNING: "cyan",
    Status.TERMINATED: "green",
    Status.ERROR: "red",
    Status.PAUSED: "yellow",
}


class Screen(Protocol):
    """Shows lines, one after the other, and the newest status."""

    # Whether a status stays visible until the next; if not, it is printed at intervals.
    keeps_status: bool

    def print(self, text: str) -> None: ...

    def show(self, progress: Progress, layout: Layout, header: Sequence[str]) -> None: ...

    def close(self) -> None: ...


def screen_for(
    stream: TextIO, *, clock: Clock = SYSTEM_CLOCK, display: Callable[[str], None] | None = None
) -> Screen:
    """Return the best screen available: a notebook, a terminal, or else plain lines."""
    display = display if display is not None else notebook_display()
    if display is not None:
        return NotebookScreen(display, clock=clock)
    try:
        is_terminal = stream.isatty()
    except ValueError:  # it is closed
        is_terminal = False
    if is_terminal:
        with contextlib.suppress(ImportError):  # rich is not installed
            from rich.console import Console

            return LiveScreen(Console(file=stream), clock)
    return PlainScreen(stream)


class PlainScreen:
    """A file, a pipe, or a terminal for text only."""

    keeps_status = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_gone = False

    def print(self, text: str) -> None:
        if self._is_gone:
            return
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # it is closed
            self._is_gone = True
            log.debug("progress is no longer shown", exc_info=True)

    def show(self, progress: Progress, layout: Layout, header: Sequence[str]) -> None:
        self.print("\n".join([*header, as_text(trial_table(progress, layout))]))

    def close(self) -> None:
        """Do nothing: everything is written."""


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
        if now - self._drawn_at < TERMINAL_FRAME_S:
            return
        self._drawn_at = now
        frame = self._frame(progress, layout, header)
        if self._live is None:
            from rich.live import Live

            # Drawn by this thread only, so that nothing keeps running if the study fails.
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
        from rich.console import Group
        from rich.text import Text

        room = max(TERMINAL_ROWS_MIN, self._console.height - len(header) - 5)
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


def notebook_display() -> Callable[[str], None] | None:
    """Return a function that shows HTML in this notebook; None outside one.

    Each call replaces what the one before showed. IPython is used only if it is loaded already.
    """
    loaded = sys.modules.get("IPython")
    shell = loaded.get_ipython() if loaded is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    ipython: Any = import_module("IPython.display")
    handle: Any = None

    def display(text: str) -> None:
        nonlocal handle
        if handle is None:
            handle = ipython.display(ipython.HTML(text), display_id=True)
        else:
            handle.update(ipython.HTML(text))

    return display


class NotebookScreen:
    """A cell of a notebook: the table, and under it the last lines."""

    keeps_status = True

    def __init__(self, display: Callable[[str], None], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._display, self._clock = display, clock
        self._table = ""
        self._lines: list[str] = []
        self._drawn_at = float("-inf")

    def print(self, text: str) -> None:
        self._lines = [*self._lines, text][-NOTEBOOK_LINES_MAX:]
        self._draw()

    def show(self, progress: Progress, layout: Layout, header: Sequence[str]) -> None:
        now = self._clock.monotonic()
        if now - self._drawn_at < NOTEBOOK_FRAME_S:
            return
        self._drawn_at = now
        self._table = page(progress, layout, header)
        self._draw()

    def close(self) -> None:
        """Do nothing: the cell stays as it is."""

    def _draw(self) -> None:
        lines = html.escape("\n".join(self._lines))
        self._display(self._table + (f"<pre>{lines}</pre>" if lines else ""))


def page(progress: Progress, layout: Layout, header: Sequence[str]) -> str:
    """Return the progress of a study as HTML."""
    lines = "".join(f"<div>{html.escape(line)}</div>" for line in header)
    return f"<div>{lines}{as_html(trial_table(progress, layout))}</div>"

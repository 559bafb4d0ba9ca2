"""A table in a notebook, replaced as the study goes on."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.tune.outputs.tables import Layout, Progress, as_html, trial_table

FRAME_S = 1.0
LINES_MAX = 50


def notebook_display() -> Callable[[str], None] | None:
    """Return how to show HTML in the notebook this runs in; None if it runs in none.

    What is shown takes the place of what was shown before. IPython is not loaded for it: a
    notebook has done that.
    """
    loaded = sys.modules.get("IPython")
    shell = loaded.get_ipython() if loaded is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from importlib import import_module

    shown: Any = import_module("IPython.display")
    handle: Any = None

    def display(text: str) -> None:
        nonlocal handle
        if handle is None:
            handle = shown.display(shown.HTML(text), display_id=True)
        else:
            handle.update(shown.HTML(text))

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
        self._lines = [*self._lines, text][-LINES_MAX:]
        self._draw()

    def show(self, progress: Progress, layout: Layout, header: Sequence[str]) -> None:
        now = self._clock.monotonic()
        if now - self._drawn_at < FRAME_S:
            return
        self._drawn_at = now
        self._table = page(progress, layout, header)
        self._draw()

    def close(self) -> None:
        """What was shown stays."""

    def _draw(self) -> None:
        below = html.escape("\n".join(self._lines))
        self._display(self._table + (f"<pre>{below}</pre>" if below else ""))


def page(progress: Progress, layout: Layout, header: Sequence[str]) -> str:
    """Return how the study stands, as HTML."""
    lines = "".join(f"<div>{html.escape(line)}</div>" for line in header)
    return f"<div>{lines}{as_html(trial_table(progress, layout))}</div>"

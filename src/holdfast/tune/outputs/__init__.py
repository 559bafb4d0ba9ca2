"""What people see of a study while it goes on, and when it is over."""

from __future__ import annotations

from holdfast.tune.outputs.output import (
    PlainScreen,
    ReporterOutput,
    Screen,
    StudyOutput,
    screen_for,
)
from holdfast.tune.outputs.tables import Best, Layout, Progress, Table

__all__ = [
    "Best",
    "Layout",
    "PlainScreen",
    "Progress",
    "ReporterOutput",
    "Screen",
    "StudyOutput",
    "Table",
    "screen_for",
]

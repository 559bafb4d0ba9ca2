"""The output of a study: progress for people, calls of callbacks, files beside the results."""

from __future__ import annotations

from holdfast.tune.outputs.output import ReporterOutput, StudyOutput
from holdfast.tune.outputs.screens import PlainScreen, Screen, screen_for
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

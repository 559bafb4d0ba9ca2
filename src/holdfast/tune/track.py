"""`tune.track`: the predecessor of `tune.report`."""

from __future__ import annotations

from typing import Any

from holdfast.tune.functions import get_context, report


def init(**_: Any) -> None:
    """Do nothing: a trial is ready to report when its function is called."""


def log(**metrics: Any) -> None:
    """Report the metrics of a step."""
    report(metrics)


def trial_dir() -> str | None:
    """Return the trial's folder on storage, None outside a trial."""
    return get_context().get_trial_dir()


def shutdown() -> None:
    """Do nothing: what was logged is stored already."""

"""Progress reporters: pass one as `progress_reporter=`, or derive from one."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.api.checks import is_number, is_whole
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import ConfigError
from holdfast.tune.outputs.screens import notebook_display, page
from holdfast.tune.outputs.tables import (
    BASE_METRICS,
    Layout,
    Progress,
    as_text,
    error_table,
    header_lines,
    trial_table,
)
from holdfast.tune.results.best import checked_mode
from holdfast.tune.trial import Trial


class ProgressReporter:
    """Shows the progress of a study; derive from it, or from `CLIReporter`, to change how."""

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """The study is about to begin or to resume."""

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:  # noqa: FBT001, FBT002
        """Return whether it is time to report; `done` says that the study is over."""
        raise NotImplementedError(f"{type(self).__name__} has no should_report")

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: Any) -> None:  # noqa: FBT001
        """Show the state of the trials; `sys_info` are further lines to show."""
        raise NotImplementedError(f"{type(self).__name__} has no report")


class TuneReporterBase(ProgressReporter):
    """The base of reporters with a table of trials.

    Args:
        metric_columns: Metrics to show, as a list, or as a dictionary with titles; by default the
            usual ones and `infer_limit` of those reported.
        parameter_columns: Parameters to show, likewise; by default those searched for.
        total_samples: How many trials there will be.
        max_progress_rows: How many trials the table shows; every status gets its share.
        max_error_rows: How many failed trials are listed.
        max_column_length: The longest text in the table.
        max_report_frequency: The least number of seconds between two reports.
        infer_limit: How many reported metrics are picked.
        print_intermediate_tables: Whether the table is shown before the study is over.
        metric: The metric that trials are compared by.
        mode: "min" or "max".
        sort_by_metric: Whether the best trials come first.
    """

    def __init__(
        self,
        *,
        metric_columns: Sequence[str] | Mapping[str, str] | None = None,
        parameter_columns: Sequence[str] | Mapping[str, str] | None = None,
        total_samples: int | None = None,
        max_progress_rows: int = 20,
        max_error_rows: int = 20,
        max_column_length: int = 20,
        max_report_frequency: float = 5,
        infer_limit: int = 3,
        print_intermediate_tables: bool | None = None,
        metric: str | None = None,
        mode: str | None = None,
        sort_by_metric: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        for name, value in (
            ("max_progress_rows", max_progress_rows),
            ("max_error_rows", max_error_rows),
            ("max_column_length", max_column_length),
            ("infer_limit", infer_limit),
        ):
            if not is_whole(value) or value < 0:
                raise ConfigError(f"{name}={value!r}: must be a whole number, 0 or more")
        if not is_number(max_report_frequency) or max_report_frequency < 0:
            raise ConfigError(
                f"max_report_frequency={max_report_frequency!r}: must be a number of seconds"
            )
        if mode is not None:
            checked_mode(mode)
        self._metric_columns = _columns(metric_columns)
        self._parameter_columns = _columns(parameter_columns)
        self._total, self._every_s = total_samples, float(max_report_frequency)
        self._rows_max, self._errors_max = max_progress_rows, max_error_rows
        self._width, self._infer_limit = max_column_length, infer_limit
        self._shows_tables = print_intermediate_tables
        self._metric, self._mode, self._sorts = metric, mode, sort_by_metric
        self._clock = clock
        self._start_time: float | None = None
        self._reported_at = float("-inf")

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._start_time = start_time if start_time is not None else self._clock.now()
        self._total = self._total if self._total is not None else total_samples
        self._metric = self._metric or metric
        self._mode = self._mode or mode

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Show another metric, under the title `representation` if given."""
        before = dict(BASE_METRICS) if self._metric_columns is None else self._metric_columns
        self._metric_columns = _added(before, metric, representation, "metric")

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Show another parameter, under the title `representation` if given."""
        before = self._parameter_columns or {}
        self._parameter_columns = _added(before, parameter, representation, "parameter")

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:  # noqa: FBT001, FBT002
        now = self._clock.monotonic()
        if not done and now - self._reported_at < self._every_s:
            return False
        self._reported_at = now
        return True

    def _layout(self, *, done: bool) -> Layout:
        return Layout(
            parameters=self._parameter_columns,
            metrics=self._metric_columns,
            rows_max=None if done and self._rows_max == 0 else self._rows_max,
            width_max=self._width,
            infer_max=self._infer_limit,
            sort_by=self._metric if self._sorts else None,
            mode=self._mode or "max",
        )

    def _progress(self, trials: Sequence[Trial], sys_info: Sequence[Any]) -> Progress:
        now = self._clock.now()
        started_at = self._start_time if self._start_time is not None else now
        return Progress(
            trials=trials,
            total=self._total,
            elapsed_s=now - started_at,
            now=now,
            notes=[str(line) for line in sys_info if str(line)],
        )

    def _progress_text(self, trials: Sequence[Trial], done: bool, *sys_info: Any) -> str:  # noqa: FBT001
        """Return the state of the trials as text; subclasses may use it."""
        progress = self._progress(trials, sys_info)
        parts = ["== Status ==", *header_lines(progress, self._metric, self._mode)]
        if done or self._shows_tables is not False:
            parts.append(as_text(trial_table(progress, self._layout(done=done))))
        errors = error_table(trials, self._errors_max)
        if errors.rows:
            parts.append(f"Failed:\n{as_text(errors)}")
        return "\n".join(parts) + "\n"


class CLIReporter(TuneReporterBase):
    """Prints the progress of a study as text."""

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: Any) -> None:  # noqa: FBT001
        _print(self._progress_text(trials, done, *sys_info))


class JupyterNotebookReporter(TuneReporterBase):
    """Shows the progress of a study as a table in a notebook, or as text outside one.

    Args:
        overwrite: Whether each report replaces the one before.
        display: Shows HTML; by default the notebook's own display.
    """

    def __init__(
        self,
        overwrite: bool = True,  # noqa: FBT001, FBT002
        *,
        display: Callable[[str], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._overwrite, self._given, self._display = overwrite, display, display

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: Any) -> None:  # noqa: FBT001
        if self._display is None or (not self._overwrite and self._given is None):
            self._display = notebook_display()
        if self._display is None:
            _print(self._progress_text(trials, done, *sys_info))
            return
        progress = self._progress(trials, sys_info)
        header = header_lines(progress, self._metric, self._mode)
        errors = error_table(trials, self._errors_max)
        failures = f"<pre>{html.escape(as_text(errors))}</pre>" if errors.rows else ""
        self._display(page(progress, self._layout(done=done), header) + failures)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _columns(given: Sequence[str] | Mapping[str, str] | None) -> dict[str, str] | None:
    if given is None:
        return None
    if isinstance(given, str):
        raise ConfigError(f"columns={given!r}: must be a list or a dictionary", hint=f"[{given!r}]")
    return dict(given) if isinstance(given, Mapping) else {name: name for name in given}


def _added(before: Mapping[str, str], name: str, title: str | None, kind: str) -> dict[str, str]:
    if name in before:
        raise ConfigError(f"the {kind} {name!r} has a column already")
    return {**before, name: title or name}

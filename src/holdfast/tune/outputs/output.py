"""Prints the events and the progress of a study; cannot delay it or make it fail.

A terminal gets one table that is always up to date, a notebook the same as HTML, and anything else,
such as a log file, a line for each event.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.core.quantities import elapsed
from holdfast.core.study.trial import Status, Trial
from holdfast.errors import ConfigError
from holdfast.tune.outputs import lines
from holdfast.tune.outputs.screens import PlainScreen, Screen, screen_for
from holdfast.tune.outputs.tables import (
    Layout,
    Progress,
    as_text,
    best_line,
    best_of,
    counts_of,
    error_table,
    header_lines,
    status_line,
    trial_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.tune.progress_reporter import ProgressReporter
    from holdfast.tune.trial import Trial as PublicTrial

log = logging.getLogger(__name__)

STATUS_EVERY_S = 30.0
CARDS_MAX = 10
VERBOSITY_MAX = 3


class StudyOutput:
    """Prints events of a study and shows its progress.

    Verbosity 0 shows nothing; 1 progress, failures and the outcome; 2 also results and checkpoints;
    3 also all metrics. No method raises, and none waits long.
    """

    def __init__(
        self,
        *,
        verbosity: int = 1,
        screen: Screen | None = None,
        layout: Layout | None = None,
        metric: str | None = None,
        mode: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if verbosity not in range(VERBOSITY_MAX + 1):
            raise ConfigError(
                f"verbose={verbosity!r}: must be 0, 1, 2 or 3", hint="0 shows nothing, 1 is usual"
            )
        self._verbosity, self._clock = int(verbosity), clock
        self._metric, self._mode = metric, mode
        self._layout = layout if layout is not None else Layout(mode=mode or "max")
        self._screen = screen if screen is not None else screen_for(sys.stderr)
        self._budget, self._results = lines.LineBudget(), lines.ResultLines()
        self._status_at = clock.monotonic()
        self._cards = 0
        self._is_broken = False

    # ------------------------------------------------------------------ events

    def begin(self, name: str, path: str, facts: Mapping[str, Any] | None = None) -> None:
        """The study begins or resumes; `facts` are printed as they are."""
        if self._verbosity:
            listed = "".join(f"\n  {key}: {value}" for key, value in (facts or {}).items())
            self._print(f"Study {name!r} at {path}{listed}")

    def trial_started(
        self, trial: Trial, before: lines.LastStart | None = None, donor: str | None = None
    ) -> None:
        """An attempt of a trial has started; see `lines.started`."""
        if self._prints_events():
            self._line("started", lines.started, trial, before, donor)

    def trial_reported(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """A trial has a new result."""
        now = self._clock.monotonic()
        if self._prints_events() and (self._verbosity >= 2 or self._results.is_due(trial, now)):
            all_metrics = self._verbosity >= VERBOSITY_MAX
            self._line("results", lines.reported, trial, result, all_metrics=all_metrics)

    def trial_saved(self, trial: Trial, folder: str) -> None:
        """A checkpoint of a trial is committed."""
        if self._verbosity >= 2:
            self._line("saved", lines.saved, trial, folder)

    def trial_finished(self, trial: Trial) -> None:
        """A trial has finished or was stopped."""
        self._results.forget(trial)
        if self._prints_events():
            self._line("finished", lines.finished, trial)

    def trial_failed(self, trial: Trial, card: str, *, is_last: bool) -> None:
        """An attempt was lost; the `card`, which says why in full, is shown for the first few."""
        self._results.forget(trial)
        if not self._verbosity:
            return
        self._cards += 1
        if card and self._cards <= CARDS_MAX:
            self._print(f"{lines.failed(trial, is_last=is_last)}\n{card}")
        else:
            self._line("failed", lines.failed, trial, is_last=is_last)

    def update(self, progress: Progress) -> None:
        """Show the progress, if it is time to; to be called often."""
        if not self._verbosity:
            return
        now = self._clock.monotonic()
        for line in self._budget.rest(now):
            self._print(line)
        if self._screen.keeps_status:
            self._show(progress)
        elif now - self._status_at >= STATUS_EVERY_S:
            self._status_at = now
            self._print("\n".join(self._header(progress)))

    def end(
        self, progress: Progress, *, resume: str | None = None, interrupted: bool = False
    ) -> None:
        """The study is over, or this driver leaves it; print the table, best trial and failures.

        `resume` is the call that resumes it. `interrupted` says that a user stopped it, which is
        printed so that its results are not taken for complete.
        """
        self.close()
        if not self._verbosity:
            return
        for line in self._budget.rest(self._clock.monotonic(), is_end=True):
            self._print(line)
        with self._guarded():
            self._screen.print(self._summary(progress, resume, interrupted=interrupted))

    def close(self) -> None:
        """Release the terminal, also if the study has failed; may be called more than once."""
        with self._guarded():
            self._screen.close()

    # ------------------------------------------------------------------ pieces

    def _prints_events(self) -> bool:
        return self._verbosity >= (2 if self._screen.keeps_status else 1)

    def _header(self, progress: Progress) -> list[str]:
        return header_lines(progress, self._metric, self._mode)

    def _summary(self, progress: Progress, resume: str | None, *, interrupted: bool) -> str:
        counts = progress.counts or counts_of(progress.trials)
        parts = [as_text(trial_table(progress, self._layout))]
        total = sum(counts.values()) if progress.total is None else progress.total
        parts.append(f"{status_line(counts, total)} in {elapsed(progress.elapsed_s)}")
        best = progress.best or best_of(progress.trials, self._metric, self._mode)
        if best is not None:
            parts.append(best_line(best).replace("Best so far", "Best", 1))
        errors = error_table(progress.trials, count=counts.get(Status.ERROR, 0))
        if errors.rows:
            parts.append(f"Failed:\n{as_text(errors)}")
        parts += [*progress.notes, *_how_to_resume(progress, resume, interrupted=interrupted)]
        return "\n".join(part for part in parts if part)

    def _line(self, kind: str, make: Callable[..., str], *facts: Any, **options: Any) -> None:
        now = self._clock.monotonic()
        if self._budget.leaves_out(kind, now):
            return
        for line in self._budget.take(kind, make(*facts, **options), now):
            self._print(line)

    def _print(self, text: str) -> None:
        with self._guarded():
            self._screen.print(text)

    def _show(self, progress: Progress) -> None:
        with self._guarded():
            self._screen.show(progress, self._layout, self._header(progress))

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Log the first failure of a screen, and let the study go on."""
        try:
            yield
        except Exception:
            if not self._is_broken:
                self._is_broken = True
                log.exception("progress cannot be shown; the study goes on")


class ReporterOutput(StudyOutput):
    """Shows progress through a user's reporter; failures are printed as usual."""

    def __init__(self, reporter: ProgressReporter, **options: Any) -> None:
        options.setdefault("screen", PlainScreen(sys.stderr))
        super().__init__(**options)
        self._reporter = reporter

    def setup(self, **facts: Any) -> None:
        """Call the reporter's `setup`; before anything else."""
        with self._guarded():
            self._reporter.setup(**facts)

    def update(self, progress: Progress) -> None:
        self._report(progress, done=False)

    def end(
        self, progress: Progress, *, resume: str | None = None, interrupted: bool = False
    ) -> None:
        self._report(progress, done=True)
        if self._verbosity:
            for text in _how_to_resume(progress, resume, interrupted=interrupted):
                self._print(text)

    def _prints_events(self) -> bool:
        return self._verbosity >= 2

    def _report(self, progress: Progress, *, done: bool) -> None:
        sys_info = [line for line in (progress.resources, *progress.notes) if line]
        trials = cast("Sequence[PublicTrial]", progress.trials)  # a study that runs has no others
        with self._guarded():
            if self._reporter.should_report(trials, done=done):
                self._reporter.report(trials, done, *sys_info)


def _how_to_resume(progress: Progress, resume: str | None, *, interrupted: bool) -> list[str]:
    """Return the last texts on a study that was interrupted or can be resumed."""
    texts = [f"To go on with it:\n  {resume}"] if resume else []
    if interrupted:
        counts = progress.counts or counts_of(progress.trials)
        texts.insert(0, lines.interrupted(counts, progress.total))
    return texts

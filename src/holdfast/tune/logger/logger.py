"""Callbacks that write down what trials report; each result once, whatever dies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.core.study.trial import Trial
from holdfast.errors import ConfigError
from holdfast.storage.base import Store
from holdfast.tune.callback import Callback
from holdfast.tune.logger.formats import Format
from holdfast.tune.logger.growing_files import growing_files_on
from holdfast.tune.logger.row_files import RowFiles
from holdfast.tune.logger.writer import BATCH_S, Writer
from holdfast.tune.result import CONFIG


class LoggerCallback(Callback):
    """A callback that hears of trials one by one; the base of loggers, ours and the user's."""

    def log_trial_start(self, trial: Trial) -> None:
        """An attempt of a trial has started."""

    def log_trial_restore(self, trial: Trial) -> None:
        """An attempt of a trial has loaded a checkpoint."""

    def log_trial_save(self, trial: Trial) -> None:
        """A trial has saved itself."""

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """A trial has reported `result`."""

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:  # noqa: FBT001, FBT002
        """A trial is over; `failed` says whether it ended in an error."""

    def on_trial_result(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        self.log_trial_result(iteration, trial, result)

    def on_trial_start(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        self.log_trial_start(trial)

    def on_trial_restore(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        self.log_trial_restore(trial)

    def on_trial_save(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        self.log_trial_save(trial)

    def on_trial_complete(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        self.log_trial_end(trial, failed=False)

    def on_trial_error(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        self.log_trial_end(trial, failed=True)


class FileLogger(LoggerCallback):
    """A logger with a file in each trial's folder, on whatever store the study is.

    A result is in its file within about half a second, in the order of the trial's steps, each
    once: one that a trial reports again, after it was lost, takes the place of the first and of all
    after that. No file stays open, and nothing is kept of a trial that is over.
    """

    _file_name: ClassVar[str]
    _numbered: ClassVar[str | None] = None

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._written_at = clock.monotonic()
        self._rows: RowFiles[Any] | None = None
        self._writer: Writer | None = None

    def _format(self) -> Format[Any]:
        raise NotImplementedError

    def _row(self, trial: Trial, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what is written of a result."""
        return result

    # ------------------------------------------------------------------ for the study

    @property
    def is_numbered(self) -> bool:
        """Whether files get other names when they are replaced, so that new ones are expected."""
        return self._numbered is not None

    def attach(self, store: Store) -> None:
        """Write below `store`, the folder of the study; to be called before anything else."""
        self._rows = RowFiles(
            growing_files_on(store), self._format(), self._file_name, numbered=self._numbered
        )

    def fence_by(self, fence: Callable[[], None]) -> None:
        """Write only while `fence` does not raise: the study may be another driver's by then."""
        self._files.fence = fence

    def write_by(self, writer: Writer) -> None:
        """Leave it to `writer` when files are written, until the study ends."""
        self._writer = writer

    def expect(self, trial: Trial, *, is_first: bool = False) -> None:
        """There is a new trial, which most likely has no file that would have to be read.

        `is_first` says that no earlier driver can have made one, and it need not be looked for.
        """
        self._files.expect(trial.folder, is_first=is_first)

    def rewind(self, trial: Trial, step: int) -> None:
        """Take away every row of the trial after `step`."""
        self._files.rewind(trial.folder, step)

    def reconcile(self, trial: Trial, rows: Sequence[Mapping[str, Any]]) -> None:
        """After a crash: keep what the file holds up to the first of `rows`, then have `rows`.

        What is torn, damaged or there twice is taken away also if `rows` is empty. Where a writer
        sees to the files, it does this too.
        """
        self._reconcile(trial, rows)

    def _reconcile(
        self, trial: Trial, rows: Sequence[Mapping[str, Any]], first: bytes | None = None
    ) -> None:
        self._files.reconcile(
            trial.folder,
            [self._row(trial, row) for row in rows],
            first=first,
            is_urgent=self._writer is None,
        )
        if trial.is_finished():
            self._files.end(trial.folder)

    def flush(self, *, durable: bool = True) -> bool:
        """Write what waits; with `durable`, for good. Return whether all of it went well."""
        self._written_at = self._clock.monotonic()
        return self._files.flush(durable=durable)

    # ------------------------------------------------------------------ being told

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        files = self._files
        files.add(trial.folder, self._row(trial, result))
        if self._writer is None:  # then rows are written when others come
            self._flush_if_due()
        elif files.is_crowded():
            self.flush(durable=False)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:  # noqa: FBT001, FBT002
        self._files.end(trial.folder)

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._files.close()

    def _flush_if_due(self) -> None:
        if self._clock.monotonic() - self._written_at >= BATCH_S:
            self.flush(durable=False)

    @property
    def _files(self) -> RowFiles[Any]:
        if self._rows is None:
            raise ConfigError(
                f"{type(self).__name__} does not know where the study is",
                hint="pass it in RunConfig(callbacks=[…])",
            )
        return self._rows


def with_config(trial: Trial, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a result that says which config it was made with."""
    return result if CONFIG in result else {**result, CONFIG: trial.config}


__all__ = ["FileLogger", "LoggerCallback", "with_config"]

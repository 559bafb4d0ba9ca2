"""Base classes of loggers: callbacks that write each result of a trial once, despite crashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import ConfigError
from holdfast.storage.base import Store
from holdfast.tune.callback import Callback
from holdfast.tune.logger.formats import Format
from holdfast.tune.logger.growing_files import growing_files_on
from holdfast.tune.logger.row_files import RowFiles
from holdfast.tune.logger.writer import BATCH_S, Writer
from holdfast.tune.result import CONFIG
from holdfast.tune.trial import Trial


class LoggerCallback(Callback):
    """A callback with a method per event of a trial; the base of loggers, also of users."""

    def log_trial_start(self, trial: Trial) -> None:
        """An attempt of a trial has started."""

    def log_trial_restore(self, trial: Trial) -> None:
        """An attempt of a trial has loaded a checkpoint."""

    def log_trial_save(self, trial: Trial) -> None:
        """A trial has saved its state."""

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
    """A logger with a file in each trial's folder, on any store.

    A result is in its file within about half a second, in the order of the trial's steps, each
    once: a step that a restarted trial reports again replaces the first one and all after it. No
    file stays open, and no memory is used for trials that are over.
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
        """Whether a replaced file gets a new name, so that finding it takes a listing."""
        return self._numbered is not None

    def attach(self, store: Store) -> None:
        """Write to `store`, the folder of the study; to be called before anything else."""
        self._rows = RowFiles(
            growing_files_on(store), self._format(), self._file_name, numbered=self._numbered
        )

    def fence_by(self, fence: Callable[[], None]) -> None:
        """Write only while `fence` does not raise, as it does once another driver has the study."""
        self._files.fence = fence

    def write_by(self, writer: Writer) -> None:
        """Let `writer` decide when files are written, until the study ends."""
        self._writer = writer

    def expect(self, trial: Trial, *, is_first: bool = False) -> None:
        """Note a new trial, which most likely has no file yet.

        `is_first` says that no earlier driver can have made one, so it is not looked for.
        """
        self._files.expect(trial.folder, is_first=is_first)

    def rewind(self, trial: Trial, step: int) -> None:
        """Remove every row of the trial after `step`."""
        self._files.rewind(trial.folder, step)

    def reconcile(self, trial: Trial, rows: Sequence[Mapping[str, Any]]) -> None:
        """After a crash: keep what the file holds up to the first of `rows`, then add `rows`.

        Torn, damaged and duplicate rows are removed even if `rows` is empty. The writer does the
        work, if there is one.
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
        """Write what is buffered, durably if `durable`; return whether all of it was written."""
        self._written_at = self._clock.monotonic()
        return self._files.flush(durable=durable)

    # ------------------------------------------------------------------ events

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        files = self._files
        files.add(trial.folder, self._row(trial, result))
        if self._writer is None:  # then later rows trigger the writing
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
    """Return a result with the config that it was made with."""
    return result if CONFIG in result else {**result, CONFIG: trial.config}


__all__ = ["FileLogger", "LoggerCallback", "with_config"]

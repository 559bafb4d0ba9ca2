"""Calls the callbacks and loggers of a study as it runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.control.study.plan import Rows, StudyObserver
from holdfast.core.study.machine import Study
from holdfast.core.study.trial import Status, Variant
from holdfast.tune.callback import CallbackList
from holdfast.tune.logger import DEFAULT_CALLBACK_CLASSES, FileLogger
from holdfast.tune.logger.formats import STEP
from holdfast.tune.logger.writer import Writer
from holdfast.tune.result import CONFIG, EXPERIMENT_TAG, SHOULD_CHECKPOINT, TRAINING_ITERATION
from holdfast.tune.trial import Trial

log = logging.getLogger(__name__)


class CallbackObserver(StudyObserver):
    """Turns the events of a study into calls of Ray's callback methods.

    Args:
        fence: Raises if another driver has taken over the study.
    """

    def __init__(
        self,
        callbacks: CallbackList,
        study: Study,
        fence: Callable[[], None] = lambda: None,
    ) -> None:
        self._callbacks, self._study = callbacks, study
        self._turns = 0
        self._began = self._is_new = False
        # A user's logger with its own `flush` may not be thread-safe: the writer leaves it alone.
        self._files = [
            callback
            for callback in callbacks
            if isinstance(callback, FileLogger) and type(callback).flush is FileLogger.flush
        ]
        for callback in callbacks:
            if isinstance(callback, FileLogger):
                callback.fence_by(fence)
        self._numbered = [logger for logger in self._files if logger.is_numbered]
        self._backlog = _Backlog(self._reconcile)
        self._writer = Writer([self._backlog, *self._files])
        # Most studies have only the default loggers, which need no list of all trials each turn.
        self._has_others = any(
            type(callback) not in DEFAULT_CALLBACK_CLASSES for callback in callbacks
        )

    def _call_loggers(self, name: str, *facts: Any) -> None:
        for logger in self._files:
            try:
                getattr(logger, name)(*facts)
            except Exception:
                log.exception("%s failed in %s; the study goes on", type(logger).__name__, name)

    def _info(self) -> dict[str, Any]:
        return {"iteration": self._turns, "trials": self._study.get_trials()}

    def _full(self, step: int, result: dict[str, Any], variant: Variant) -> dict[str, Any]:
        result.setdefault(EXPERIMENT_TAG, variant.tag)
        full = {**result, CONFIG: dict(variant.config)}
        if full.get(TRAINING_ITERATION) != step or STEP in full:
            full[STEP] = step  # loggers identify rows by it
        return full

    def resumed(self, rows: Mapping[str, Rows], trials: Mapping[str, Trial]) -> None:
        for logger in self._files:
            logger.write_by(self._writer)
        if self._files:  # which close it at the end
            self._writer.start()
        self._is_new = self._study.made == 0
        for trial_id, trial in trials.items():
            if trial.is_finished() and not self._has_others:
                self._backlog.add(trial, rows[trial_id])
            else:
                self._reconcile(trial, rows[trial_id])

    def _reconcile(self, trial: Trial, rows: Rows) -> None:
        results = [self._full(step, dict(result), variant) for step, result, variant in rows]
        self._callbacks.reconcile(trial, results)

    def trial_added(self, trial: Trial) -> None:
        for logger in self._numbered:
            logger.expect(trial, is_first=self._is_new)

    def trial_started(self, trial: Trial, after_step: int) -> None:
        self._backlog.reconcile(trial.trial_id)
        if trial.run.attempts > 1 or after_step:
            self._callbacks.rewind(trial, after_step)
        if self._has_others:
            self._callbacks.on_trial_start(trial=trial, **self._info())
        else:
            self._call_loggers("log_trial_start", trial)

    def trial_result(self, trial: Trial, result: dict[str, Any]) -> None:
        full = self._full(trial.step, result, trial.reported_as)
        if not self._has_others:
            self._call_loggers("log_trial_result", self._turns, trial, full)
            return
        self._callbacks.on_trial_result(trial=trial, result=full, **self._info())
        if full.get(SHOULD_CHECKPOINT):
            result[SHOULD_CHECKPOINT] = True

    def trial_saved(self, trial: Trial, checkpoint: Checkpoint) -> None:
        if self._has_others:
            self._callbacks.on_trial_save(trial=trial, **self._info())
            self._callbacks.on_checkpoint(trial=trial, checkpoint=checkpoint, **self._info())

    def trial_lost(self, trial: Trial, card: str, *, is_last: bool) -> None:
        del card
        if self._has_others and not is_last:
            self._callbacks.on_trial_recover(trial=trial, **self._info())

    def trial_ended(self, trial: Trial) -> None:
        forget = getattr(self._study.judges.stopper, "forget", None)
        if forget is not None:
            forget(trial.trial_id)
        if not self._has_others:
            self._call_loggers("log_trial_end", trial)
        elif trial.status is Status.ERROR:
            self._callbacks.on_trial_error(trial=trial, **self._info())
        else:
            self._callbacks.on_trial_complete(trial=trial, **self._info())

    def turned(self, *, is_over: bool) -> None:
        if self._began and self._has_others:
            self._callbacks.on_step_end(**self._info())
        self._turns += 1
        if not is_over and self._has_others:
            self._began = True
            self._callbacks.on_step_begin(**self._info())

    def settle(self) -> Callable[[], bool]:
        # Loggers that the writer does not flush are flushed now, before they get later results.
        is_done = self._callbacks.flush(durable=True, without=self._files)
        is_written = self._writer.settle()
        return lambda: is_done and is_written()

    def flush(self) -> bool:
        self._backlog.flush()
        for logger in self._files:  # first, so that one sync covers all of them
            logger.flush(durable=False)
        return self._callbacks.flush(durable=True)


class _Backlog:
    """Finished trials whose files an earlier driver may have left incomplete.

    There can be thousands, and nothing waits for them, so the writer's thread reconciles them: each
    before anything else happens to its trial, and all before the journal drops their rows.
    """

    def __init__(self, reconcile: Callable[[Trial, Rows], None]) -> None:
        self._reconcile = reconcile
        self._waiting: dict[str, tuple[Trial, Rows]] = {}
        self._lock = threading.Lock()

    def add(self, trial: Trial, rows: Rows) -> None:
        self._waiting[trial.trial_id] = trial, rows

    def reconcile(self, trial_id: str) -> None:
        """Return once the loggers know the rows that a trial's files must hold."""
        if trial_id not in self._waiting:
            return
        with self._lock:
            if trial_id in self._waiting:
                self._reconcile(*self._waiting[trial_id])
                del self._waiting[trial_id]

    def flush(self, *, durable: bool = True) -> bool:
        """Reconcile all trials."""
        del durable
        for trial_id in list(self._waiting):
            self.reconcile(trial_id)
        return True

"""Passes what happens in a study on to the callbacks and loggers of Tune."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.control.study.plan import Rows, StudyObserver
from holdfast.core.study.machine import Study
from holdfast.core.study.trial import Status, Trial, Variant
from holdfast.errors import ObjectMissing
from holdfast.storage.base import Store
from holdfast.tune.callback import CallbackList
from holdfast.tune.logger import DEFAULT_CALLBACK_CLASSES, FileLogger
from holdfast.tune.logger.formats import STEP
from holdfast.tune.logger.writer import Writer
from holdfast.tune.result import CONFIG, EXPERIMENT_TAG, EXPR_ERROR_FILE, TRAINING_ITERATION
from holdfast.tune.results.trial_folder import AGAIN, FAILED, LOST, last_failure

log = logging.getLogger(__name__)


class CallbackTeller(StudyObserver):
    """Tells callbacks, in the words that Ray has for it.

    Args:
        config_of: The config of a trial as its process has it.
        fence: Raises if the study is another driver's by now.
    """

    def __init__(
        self,
        callbacks: CallbackList,
        study: Study,
        config_of: Callable[[Trial], Mapping[str, Any]],
        fence: Callable[[], None] = lambda: None,
    ) -> None:
        self._callbacks, self._study, self._config_of = callbacks, study, config_of
        self._turns = 0
        self._began = self._is_new = False
        # A logger of the user's that writes in its own way is called only from here.
        self._files = [
            one
            for one in callbacks
            if isinstance(one, FileLogger) and type(one).flush is FileLogger.flush
        ]
        for one in callbacks:
            if isinstance(one, FileLogger):
                one.fence_by(fence)
        self._numbered = [one for one in self._files if one.is_numbered]
        self._behind = _Behind(self._reconcile)
        self._writer = Writer([self._behind, *self._files])
        # Most studies have no others, and these need not be shown all trials at every turn.
        self._has_others = any(type(one) not in DEFAULT_CALLBACK_CLASSES for one in callbacks)

    def _tell_files(self, name: str, *facts: Any) -> None:
        for one in self._files:
            try:
                getattr(one, name)(*facts)
            except Exception:
                log.exception("%s failed in %s; the study goes on", type(one).__name__, name)

    def _info(self) -> dict[str, Any]:
        return {"iteration": self._turns, "trials": self._study.get_trials()}

    def _full(self, step: int, result: dict[str, Any], variant: Variant) -> dict[str, Any]:
        result.setdefault(EXPERIMENT_TAG, variant.tag)
        full = {**result, CONFIG: dict(variant.config)}
        if full.get(TRAINING_ITERATION) != step or STEP in full:
            full[STEP] = step  # or loggers would take it for the result of another step
        return full

    def resumed(self, rows: Mapping[str, Rows], trials: Mapping[str, Trial]) -> None:
        for one in self._files:
            one.write_by(self._writer)
        if self._files:  # who close it
            self._writer.start()
        self._is_new = self._study.made == 0
        for trial_id, trial in trials.items():
            if trial.is_finished() and not self._has_others:
                self._behind.add(trial, rows[trial_id])
            else:
                self._reconcile(trial, rows[trial_id])

    def _reconcile(self, trial: Trial, rows: Rows) -> None:
        told = [self._full(step, dict(result), variant) for step, result, variant in rows]
        self._callbacks.reconcile(trial, told)

    def trial_added(self, trial: Trial) -> None:
        for one in self._numbered:
            one.expect(trial, is_first=self._is_new)

    def trial_started(self, trial: Trial, after_step: int) -> None:
        self._behind.see_to(trial.trial_id)
        if trial.run.attempts > 1 or after_step:
            self._callbacks.rewind(trial, after_step)
        if self._has_others:
            self._callbacks.on_trial_start(trial=trial, **self._info())
        else:
            self._tell_files("log_trial_start", trial)

    def trial_result(self, trial: Trial, result: dict[str, Any]) -> None:
        full = self._full(trial.step, result, trial.reported_as)
        if not self._has_others:
            self._tell_files("log_trial_result", self._turns, trial, full)
            return
        self._callbacks.on_trial_result(trial=trial, result=full, **self._info())
        if full.get("should_checkpoint"):
            result["should_checkpoint"] = True

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
            self._tell_files("log_trial_end", trial)
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
        # Those that are not written aside now, while they know of nothing later.
        is_done = self._callbacks.flush(durable=True, without=self._files)
        is_written = self._writer.settle()
        return lambda: is_done and is_written()

    def flush(self) -> bool:
        self._behind.flush()
        for one in self._files:  # so that what is durable is made so for all of them at once
            one.flush(durable=False)
        return self._callbacks.flush(durable=True)


class _Behind:
    """Trials that are over, and whose files an earlier driver may have left unfinished.

    There can be thousands of them, and nobody waits for one: they are seen to beside the study,
    each before anything else becomes of it, and all before the journal lets go of their rows.
    """

    def __init__(self, reconcile: Callable[[Trial, Rows], None]) -> None:
        self._reconcile = reconcile
        self._left: dict[str, tuple[Trial, Rows]] = {}
        self._lock = threading.Lock()

    def add(self, trial: Trial, rows: Rows) -> None:
        self._left[trial.trial_id] = trial, rows

    def see_to(self, trial_id: str) -> None:
        """Return once the loggers know what a trial's files are to hold."""
        if trial_id not in self._left:
            return
        with self._lock:
            if trial_id in self._left:
                self._reconcile(*self._left[trial_id])
                del self._left[trial_id]

    def flush(self, *, durable: bool = True) -> bool:
        """See to all of them."""
        del durable
        for trial_id in list(self._left):
            self.see_to(trial_id)
        return True


class FileTeller(StudyObserver):
    """Writes what a scheduler has to say to files in the study's folder, each line once."""

    def __init__(self, study: Study, store: Store) -> None:
        self._scheduler, self._store = study.judges.scheduler, store

    def turned(self, *, is_over: bool) -> None:
        del is_over
        self._write()

    def flush(self) -> bool:
        self._write()
        return True

    def _write(self) -> None:
        taken: Mapping[str, str] = getattr(self._scheduler, "take_files", dict)()
        for name, text in taken.items():
            try:
                there = self._store.get(name).data.decode()
            except ObjectMissing:
                there = ""
            # After a crash the last lines are said again; they may be in the file.
            known = set(there.splitlines())
            new = [line for line in text.splitlines() if line not in known]
            if new:
                self._store.put(name, (there + "\n".join(new) + "\n").encode())


class ErrorFiles(StudyObserver):
    """Keeps the text of every failure in the file `error.txt` of its trial's folder."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._looked: set[str] = set()  # trials that start again and again are looked at once

    def trial_lost(self, trial: Trial, card: str, *, is_last: bool) -> None:
        told = FAILED if is_last else LOST
        self._add(trial, f"{told}{_now()}\n{card}\n\n", self._so_far(trial))

    def trial_started(self, trial: Trial, after_step: int) -> None:
        del after_step
        if trial.run.attempts == 1 or trial.trial_id in self._looked:
            return
        self._looked.add(trial.trial_id)
        if last_failure(there := self._so_far(trial)):
            self._add(trial, f"{AGAIN}{_now()}\n\n", there)

    def trial_ended(self, trial: Trial) -> None:
        self._looked.discard(trial.trial_id)

    def _so_far(self, trial: Trial) -> str:
        try:
            return self._store.get(f"{trial.folder}/{EXPR_ERROR_FILE}").data.decode()
        except ObjectMissing:
            return ""

    def _add(self, trial: Trial, told: str, there: str) -> None:
        self._store.put(f"{trial.folder}/{EXPR_ERROR_FILE}", (there + told).encode())


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")

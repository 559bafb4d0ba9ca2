"""Passes what happens in a study on to the callbacks and loggers of Tune."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.control.study_plan import Rows, StudyObserver
from holdfast.core.study import Study
from holdfast.core.trial import Status, Trial
from holdfast.errors import ObjectMissing
from holdfast.storage.base import Store
from holdfast.tune.callback import CallbackList
from holdfast.tune.result import CONFIG, EXPERIMENT_TAG


class CallbackTeller(StudyObserver):
    """Tells callbacks, in the words that Ray has for it.

    Args:
        config_of: The config of a trial as its process has it.
    """

    def __init__(
        self,
        callbacks: CallbackList,
        study: Study,
        config_of: Callable[[Trial], Mapping[str, Any]],
    ) -> None:
        self._callbacks, self._study, self._config_of = callbacks, study, config_of
        self._turns = 0
        self._began = False

    def _info(self) -> dict[str, Any]:
        return {"iteration": self._turns, "trials": self._study.get_trials()}

    def _full(self, trial: Trial, result: dict[str, Any]) -> dict[str, Any]:
        result.setdefault(EXPERIMENT_TAG, trial.experiment_tag)
        return {**result, CONFIG: dict(trial.config)}

    def resumed(self, rows: Mapping[str, Rows], trials: Mapping[str, Trial]) -> None:
        for trial_id, trial in trials.items():
            told = [self._full(trial, dict(result)) for _, result in rows[trial_id]]
            self._callbacks.reconcile(trial, told)

    def trial_started(self, trial: Trial, after_step: int) -> None:
        if trial.run.attempts > 1 or after_step:
            self._callbacks.rewind(trial, after_step)
        self._callbacks.on_trial_start(trial=trial, **self._info())

    def trial_result(self, trial: Trial, result: dict[str, Any]) -> None:
        full = self._full(trial, result)
        self._callbacks.on_trial_result(trial=trial, result=full, **self._info())
        if full.get("should_checkpoint"):
            result["should_checkpoint"] = True

    def trial_saved(self, trial: Trial, checkpoint: Checkpoint) -> None:
        self._callbacks.on_trial_save(trial=trial, **self._info())
        self._callbacks.on_checkpoint(trial=trial, checkpoint=checkpoint, **self._info())

    def trial_lost(self, trial: Trial, card: str, *, is_last: bool) -> None:
        del card
        if not is_last:
            self._callbacks.on_trial_recover(trial=trial, **self._info())

    def trial_ended(self, trial: Trial) -> None:
        forget = getattr(self._study.judges.stopper, "forget", None)
        if forget is not None:
            forget(trial.trial_id)
        if trial.status is Status.ERROR:
            self._callbacks.on_trial_error(trial=trial, **self._info())
        else:
            self._callbacks.on_trial_complete(trial=trial, **self._info())

    def turned(self, *, is_over: bool) -> None:
        if self._began:
            self._callbacks.on_step_end(**self._info())
        self._turns += 1
        if not is_over:
            self._began = True
            self._callbacks.on_step_begin(**self._info())

    def flush(self) -> bool:
        return self._callbacks.flush(durable=True)


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

    def trial_lost(self, trial: Trial, card: str, *, is_last: bool) -> None:
        del is_last
        key = f"{trial.folder}/error.txt"
        try:
            there = self._store.get(key).data
        except ObjectMissing:
            there = b""
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        told = f"Failure of attempt {trial.run.attempts} at {when}\n{card}\n\n"
        self._store.put(key, there + told.encode())

"""Files of a study besides those of loggers: logs of schedulers, errors of trials."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from holdfast.control.study.plan import StudyObserver
from holdfast.core.study.machine import Study
from holdfast.core.study.trial import Trial
from holdfast.errors import ObjectMissing
from holdfast.storage.base import Store
from holdfast.tune.result import EXPR_ERROR_FILE
from holdfast.tune.results.trial_folder import AGAIN, FAILED, LOST, last_failure


class SchedulerFiles(StudyObserver):
    """Writes the log lines of a scheduler to files in the study's folder, each line once."""

    def __init__(self, study: Study, store: Store) -> None:
        self._scheduler, self._store = study.judges.scheduler, store

    def turned(self, *, is_over: bool) -> None:
        del is_over
        self._write()

    def settle(self) -> Callable[[], bool]:
        self._write()
        return lambda: True

    def flush(self) -> bool:
        self._write()
        return True

    def _write(self) -> None:
        taken: Mapping[str, str] = getattr(self._scheduler, "take_files", dict)()
        for name, text in taken.items():
            try:
                stored = self._store.get(name).data.decode()
            except ObjectMissing:
                stored = ""
            # After a crash the last lines come again, and may be in the file already.
            written = set(stored.splitlines())
            new = [line for line in text.splitlines() if line not in written]
            if new:
                self._store.put(name, (stored + "\n".join(new) + "\n").encode())


class ErrorFiles(StudyObserver):
    """Keeps the text of every failure in the file `error.txt` of its trial's folder."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._checked: set[str] = set()  # trials whose file was read when they restarted

    def trial_lost(self, trial: Trial, card: str, *, is_last: bool) -> None:
        heading = FAILED if is_last else LOST
        self._add(trial, f"{heading}{_now()}\n{card}\n\n", self._stored(trial))

    def trial_started(self, trial: Trial, after_step: int) -> None:
        del after_step
        if trial.run.attempts == 1 or trial.trial_id in self._checked:
            return
        self._checked.add(trial.trial_id)
        if last_failure(stored := self._stored(trial)):
            self._add(trial, f"{AGAIN}{_now()}\n\n", stored)

    def trial_ended(self, trial: Trial) -> None:
        self._checked.discard(trial.trial_id)

    def _stored(self, trial: Trial) -> str:
        try:
            return self._store.get(f"{trial.folder}/{EXPR_ERROR_FILE}").data.decode()
        except ObjectMissing:
            return ""

    def _add(self, trial: Trial, text: str, stored: str) -> None:
        self._store.put(f"{trial.folder}/{EXPR_ERROR_FILE}", (stored + text).encode())


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")

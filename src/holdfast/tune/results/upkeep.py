"""Upkeep of a study's trials: verifies and readmits their checkpoints, removes their litter."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from holdfast.clock import SYSTEM_CLOCK
from holdfast.control.record import run_view
from holdfast.control.record.identity import RUN_KEY
from holdfast.control.record.litter import Litter, find_litter, remove_litter, sweep
from holdfast.control.record.open_run import OpenRun, OpenStudy
from holdfast.control.record.run_view import RunView, Verification
from holdfast.control.study.trial_checkpoints import TrialCheckpoints
from holdfast.core.checkpoint.record import RunRecord
from holdfast.core.study.events import StudyEvent, to_data
from holdfast.core.study.trial import Trial
from holdfast.storage.base import Store
from holdfast.storage.locate import child
from holdfast.storage.parallel import Watch
from holdfast.tune.results.study_view import StudyInspection, inspect_study

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StudyVerification(Verification):
    """The result of verifying a study; keys are relative to the study's folder.

    Attributes:
        trials: How many trial folders were read.
        resumes: Unfinished trials with a damaged checkpoint, and the folder of the checkpoint they
            resume from; None if none is intact.
    """

    trials: int = 0
    resumes: dict[str, str | None] = field(default_factory=dict)


# ---------------------------------------------------------------------- verifying


def verify_study(study: StudyInspection, watch: Watch | None = None) -> StudyVerification:
    """Read every byte of every checkpoint of every trial, and return what is damaged."""
    total = StudyVerification()
    _add(total, "", run_view.verify(study.run, watch))
    total.damaged |= {key: list(problems) for key, problems in study.damage.items()}
    for trial in study.trials:
        view = study.view_of(trial)
        result = verify_trial(study, trial, view, watch)
        _add(total, f"{trial.folder}/", result)
        total.trials += 1
        if result.damaged and not trial.is_finished():
            usable = (entry.directory for entry in view.record.usable())
            intact = (directory for directory in usable if directory not in result.damaged)
            total.resumes[str(trial)] = next(intact, None)
    for view in study.unclaimed_folders():
        folder = view.identity.name
        result = _still_damaged(study, run_view.verify(view, watch), folder, watch)
        _add(total, f"{folder}/", result)
        total.trials += 1
    return total


def verify_trial(
    study: StudyInspection, trial: Trial, view: RunView, watch: Watch | None = None
) -> Verification:
    """Read every byte of a trial's checkpoints; keys are relative to the trial's folder."""
    result = run_view.verify(view, watch)
    result.litter = _certain(study, trial, view.store, result.litter)
    return _still_damaged(study, result, trial.folder, watch)


def _still_damaged(
    study: StudyInspection, result: Verification, folder: str, watch: Watch | None
) -> Verification:
    """Return a verification without damage that is gone when the folder is read again.

    A checkpoint that the driver of a live study retires while it is read looks damaged.
    """
    if not result.damaged or not study.run.is_live:
        return result
    now = inspect_study(study.run.store)
    views = [now.view_of(trial) for trial in now.trials if trial.folder == folder]
    views = views or [view for view in now.unclaimed_folders() if view.identity.name == folder]
    still = {key for view in views for key in run_view.verify(view, watch).damaged}
    return replace(result, damaged={k: v for k, v in result.damaged.items() if k in still})


def _add(total: StudyVerification, prefix: str, part: Verification) -> None:
    total.checkpoints += part.checkpoints
    total.files += part.files
    total.size += part.size
    total.damaged |= {f"{prefix}{key}": problems for key, problems in part.damaged.items()}
    total.unread |= {f"{prefix}{key}": reason for key, reason in part.unread.items()}
    total.quarantined |= {f"{prefix}{key}": reason for key, reason in part.quarantined.items()}
    total.restorable += [f"{prefix}{key}" for key in part.restorable]
    total.foreign += [f"{prefix}{key}" for key in part.foreign]
    total.litter = _joined(total.litter, _prefixed(prefix, part.litter))


# ---------------------------------------------------------------------- readmitting


def readmit_in_study(store: Store, name: str, folder: str | None = None) -> list[str]:
    """Readmit quarantined checkpoints that are intact, and return their folders.

    Only those of the trial in `folder`, if that is given. Keys are relative to the study's folder.
    Raises `RunHeld` if another process drives the study.
    """
    readmitted = []
    with OpenStudy.open(store, name=name, patient=False) as run:
        for trial in inspect_study(store).trials:
            if folder is None or trial.folder == folder:
                directories = _checkpoints_of(run, trial).readmit()
                readmitted += [f"{trial.folder}/{directory}" for directory in directories]
    trials = inspect_study(store).trials
    archived = {f"{t.folder}/{k.directory}" for t in trials for k in t.checkpoints.quarantined()}
    for key in archived.intersection(readmitted):
        log.warning("%s is intact, but its trial is over and archived: open it by its path", key)
    return [key for key in readmitted if key not in archived]


def _checkpoints_of(run: OpenRun, trial: Trial) -> TrialCheckpoints:
    """Return the checkpoints of a trial whose study we hold and do not drive."""
    home = child(run.store, trial.folder)
    return TrialCheckpoints(trial, home, run.run_id, run.epoch, _DirectJournal(run), SYSTEM_CLOCK)


# ---------------------------------------------------------------------- litter


def find_study_litter(study: StudyInspection) -> list[Litter]:
    """Return what is certainly litter; in a live study, only that of finished trials.

    Keys are relative to the study's folder.
    """
    litter: list[Litter] = []
    if not study.run.is_live:
        litter = _litter_in(study, study.run.store, study.run.record)
    for trial in study.trials:
        if not study.run.is_live or trial.is_finished():
            litter = _joined(litter, _prefixed(f"{trial.folder}/", _litter_of(study, trial)))
    return litter


def sweep_study(store: Store, name: str) -> list[Litter]:
    """Remove all litter of a study and return it; keys are relative to the study's folder.

    Raises `RunHeld` if another process drives the study.
    """
    with OpenStudy.open(store, name=name, patient=False) as run:
        study = inspect_study(store)
        study = replace(study, run=replace(study.run, is_live=False))  # we hold it
        removed = sweep(run)
        for trial in study.trials:
            litter = _litter_of(study, trial)
            run.lease.check()  # if we lost it, this may be the work of our successor
            remove_litter(_checkpoints_of(run, trial), litter)
            removed = _joined(removed, _prefixed(f"{trial.folder}/", litter))
    return removed


class _DirectJournal:
    """Writes events of trials to the journal of a study that is held, but not driven."""

    def __init__(self, run: OpenRun) -> None:
        self._run, self.has_lost_records = run, run.has_lost_records

    def happen(self, event: StudyEvent) -> None:
        self._run.note(event.kind, to_data(event))

    def settle(self) -> None:
        pass  # `happen` returns only when the event is written

    def check(self) -> None:
        self._run.lease.check()


def _litter_of(study: StudyInspection, trial: Trial) -> list[Litter]:
    store = child(study.run.store, trial.folder)
    return _certain(study, trial, store, _litter_in(study, store, trial.checkpoints))


def _litter_in(study: StudyInspection, store: Store, record: RunRecord) -> list[Litter]:
    is_damaged = bool(study.run.journal_damage)
    return find_litter(store, study.run.identity.run_id, record, is_damaged=is_damaged)


def _certain(
    study: StudyInspection, trial: Trial, store: Store, candidates: Iterable[Litter]
) -> list[Litter]:
    """Return litter without checkpoints that another trial starts from or a nested run may keep."""
    donated = {
        receiver.donor.directory
        for receiver in study.trials
        if receiver.donor is not None and receiver.donor.folder == trial.folder
    }
    return [
        litter
        for litter in candidates
        if litter.number is None or not (litter.key in donated or _is_of_a_run(store, litter.key))
    ]


def _is_of_a_run(store: Store, directory: str) -> bool:
    """Whether a folder belongs to a training run inside the folder of its trial."""
    parent, slash, _ = directory.rpartition("/")
    return bool(slash) and store.stat(f"{parent}/{RUN_KEY}") is not None


def _prefixed(prefix: str, litter: Iterable[Litter]) -> list[Litter]:
    return [replace(item, key=f"{prefix}{item.key}") for item in litter]


def _joined(first: list[Litter], second: Iterable[Litter]) -> list[Litter]:
    """Return both without duplicates: some stores also list what is inside nested folders."""
    keys = {item.key for item in first}
    return [*first, *(item for item in second if item.key not in keys)]

"""Upkeep of all trials of a study: checkpoints read again and taken back, litter removed."""

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
from holdfast.tune.results.study_view import StudyLook, look_at_study

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StudyVerification(Verification):
    """The result of reading everything again; keys are below the study's folder.

    Attributes:
        trials: How many folders of trials were looked at.
        resumes: Trials that are not over and have a damaged checkpoint, with the folder of the one
            that they go on from, None if none is whole.
    """

    trials: int = 0
    resumes: dict[str, str | None] = field(default_factory=dict)


# ---------------------------------------------------------------------- verifying


def verify_study(study: StudyLook, watch: Watch | None = None) -> StudyVerification:
    """Read every byte of every checkpoint of every trial, and say what is not as it was saved."""
    result = StudyVerification()
    _add(result, "", run_view.verify(study.run, watch))
    result.damaged |= {key: list(problems) for key, problems in study.damage.items()}
    for trial in study.trials:
        view = study.view_of(trial)
        found = verify_trial(study, trial, view, watch)
        _add(result, f"{trial.folder}/", found)
        result.trials += 1
        if found.damaged and not trial.is_finished():
            usable = (kept.directory for kept in view.record.usable())
            whole = (directory for directory in usable if directory not in found.damaged)
            result.resumes[str(trial)] = next(whole, None)
    for view in study.unknown():
        folder = view.identity.name
        _add(result, f"{folder}/", _sure(study, run_view.verify(view, watch), folder, watch))
        result.trials += 1
    return result


def verify_trial(
    study: StudyLook, trial: Trial, view: RunView, watch: Watch | None = None
) -> Verification:
    """Read every byte of every checkpoint of one trial; keys are below the trial's folder."""
    found = run_view.verify(view, watch)
    found.litter = _certain(study, trial, view.store, found.litter)
    return _sure(study, found, trial.folder, watch)


def _sure(study: StudyLook, found: Verification, folder: str, watch: Watch | None) -> Verification:
    """Return a verification without what was removed by the study's driver meanwhile.

    A checkpoint that is retired while it is read looks damaged. One that is damaged still is when
    it is looked for again.
    """
    if not found.damaged or not study.run.is_live:
        return found
    now = look_at_study(study.run.store)
    views = [now.view_of(one) for one in now.trials if one.folder == folder]
    views = views or [one for one in now.unknown() if one.identity.name == folder]
    still = {key for view in views for key in run_view.verify(view, watch).damaged}
    return replace(found, damaged={k: v for k, v in found.damaged.items() if k in still})


def _add(result: StudyVerification, prefix: str, found: Verification) -> None:
    result.checkpoints += found.checkpoints
    result.files += found.files
    result.size += found.size
    result.damaged |= {f"{prefix}{key}": what for key, what in found.damaged.items()}
    result.unread |= {f"{prefix}{key}": what for key, what in found.unread.items()}
    result.quarantined |= {f"{prefix}{key}": what for key, what in found.quarantined.items()}
    result.restorable += [f"{prefix}{key}" for key in found.restorable]
    result.foreign += [f"{prefix}{key}" for key in found.foreign]
    result.litter = _joined(result.litter, _below(prefix, found.litter))


# ---------------------------------------------------------------------- taking back


def readmit_in_study(store: Store, name: str, folder: str | None = None) -> list[str]:
    """Use those quarantined checkpoints of trials again that are whole, and return their folders.

    Of the trial in `folder` alone, if one is named. Raises `RunHeld` if somebody drives the study.
    Keys are below the study's folder.
    """
    readmitted = []
    with OpenStudy.open(store, name=name, patient=False) as run:
        for trial in look_at_study(store).trials:
            if folder is None or trial.folder == folder:
                directories = _checkpoints_of(run, trial).readmit()
                readmitted += [f"{trial.folder}/{directory}" for directory in directories]
    trials = look_at_study(store).trials
    archived = {f"{t.folder}/{k.directory}" for t in trials for k in t.checkpoints.quarantined()}
    for key in archived.intersection(readmitted):
        log.warning("%s is whole, but its trial is over and archived: open it by its path", key)
    return [key for key in readmitted if key not in archived]


def _checkpoints_of(run: OpenRun, trial: Trial) -> TrialCheckpoints:
    """Return the checkpoints of a trial of a study that is held by us and that nobody drives."""
    home = child(run.store, trial.folder)
    return TrialCheckpoints(trial, home, run.run_id, run.epoch, _Notes(run), SYSTEM_CLOCK)


# ---------------------------------------------------------------------- litter


def find_study_litter(study: StudyLook) -> list[Litter]:
    """Return what is certainly litter; of a live study, only that of trials that are over.

    Keys are below the study's folder.
    """
    found: list[Litter] = []
    if not study.run.is_live:
        found = _litter_in(study, study.run.store, study.run.record)
    for trial in study.trials:
        if not study.run.is_live or trial.is_finished():
            found = _joined(found, _below(f"{trial.folder}/", _litter_of(study, trial)))
    return found


def sweep_study(store: Store, name: str) -> list[Litter]:
    """Remove all litter of a study and return what it was; raise `RunHeld` if somebody drives it.

    Keys are below the study's folder.
    """
    with OpenStudy.open(store, name=name, patient=False) as run:
        study = look_at_study(store)
        study = replace(study, run=replace(study.run, is_live=False))  # it is held by us
        found = sweep(run)
        for trial in study.trials:
            litter = _litter_of(study, trial)
            run.lease.check()  # whoever was replaced must not take its successor's work for litter
            remove_litter(_checkpoints_of(run, trial), litter)
            found = _joined(found, _below(f"{trial.folder}/", litter))
    return found


class _Notes:
    """Writes down what happens to trials of a study that nobody drives."""

    def __init__(self, run: OpenRun) -> None:
        self._run, self.has_lost_records = run, run.has_lost_records

    def happen(self, event: StudyEvent) -> None:
        self._run.note(event.kind, to_data(event))

    def settle(self) -> None:
        pass  # nothing is noted without waiting

    def check(self) -> None:
        self._run.lease.check()


def _litter_of(study: StudyLook, trial: Trial) -> list[Litter]:
    store = child(study.run.store, trial.folder)
    return _certain(study, trial, store, _litter_in(study, store, trial.checkpoints))


def _litter_in(study: StudyLook, store: Store, record: RunRecord) -> list[Litter]:
    is_damaged = bool(study.run.journal_damage)
    return find_litter(store, study.run.identity.run_id, record, is_damaged=is_damaged)


def _certain(study: StudyLook, trial: Trial, store: Store, found: Iterable[Litter]) -> list[Litter]:
    """Return litter without what another trial is to begin with, or a run inside may keep."""
    donors = {
        one.donor.directory
        for one in study.trials
        if one.donor is not None and one.donor.folder == trial.folder
    }
    return [
        one
        for one in found
        if one.number is None or not (one.key in donors or _is_of_a_run(store, one.key))
    ]


def _is_of_a_run(store: Store, directory: str) -> bool:
    """Whether a folder belongs to a training run that the trial was."""
    above, slash, _ = directory.rpartition("/")
    return bool(slash) and store.stat(f"{above}/{RUN_KEY}") is not None


def _below(prefix: str, found: Iterable[Litter]) -> list[Litter]:
    return [replace(one, key=f"{prefix}{one.key}") for one in found]


def _joined(found: list[Litter], more: Iterable[Litter]) -> list[Litter]:
    """Return both, each thing once: some stores tell of what is below a folder as well."""
    known = {one.key for one in found}
    return [*found, *(one for one in more if one.key not in known)]

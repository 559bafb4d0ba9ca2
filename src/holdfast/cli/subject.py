"""The subject of a command: a run, a study, or one trial of a study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.control.record.run_view import RunView
    from holdfast.core.study.trial import Trial
    from holdfast.tune.results.study_view import StudyInspection


@dataclass(frozen=True)
class StudySubject:
    """A study."""

    study: StudyInspection


@dataclass(frozen=True)
class TrialSubject:
    """One trial of a study."""

    study: StudyInspection
    trial: Trial


def subject_at(path: str) -> RunView | StudySubject | TrialSubject:
    """Return the run, study or trial whose folder or URI `path` is.

    Raises `RunMissing` if it is none of these.
    """
    from holdfast.control.record.run_view import look
    from holdfast.storage.locate import open_store
    from holdfast.tune.results.study_view import inspect_study, is_study, study_above

    store = open_store(path)
    if is_study(store):
        return StudySubject(inspect_study(store))
    if (above := study_above(path)) is not None:
        study = inspect_study(above[0])
        return TrialSubject(study, study.trial(above[1]))
    return look(store)

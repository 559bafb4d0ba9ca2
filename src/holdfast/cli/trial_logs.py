"""What the processes of trials have printed, as files."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.core.trial import Trial
    from holdfast.tune.study_looking import StudyLook

_ATTEMPT = re.compile(r"attempt-(\d+)\.log")


def trial_logs(study: StudyLook, trial: Trial) -> dict[int, str]:
    """Return the logs of a trial by attempt, rising: with the study, or on its driver's machine."""
    folder = trial_log_folder(study, trial)
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    matches = [(name, _ATTEMPT.fullmatch(name)) for name in names]
    return dict(sorted((int(m[1]), os.path.join(folder, name)) for name, m in matches if m))


def trial_log_folder(study: StudyLook, trial: Trial) -> str:
    """Return where the logs of a trial are."""
    from holdfast.control.output import log_folder

    store = study.run.store
    if store.local is not None:
        return store.local.path(f"{trial.folder}/logs")
    return os.path.join(log_folder(store, study.run.identity.run_id), trial.folder, "logs")

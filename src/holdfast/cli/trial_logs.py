"""What the processes of trials have printed, as files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.cli.output import print_json, say, say_printed

if TYPE_CHECKING:
    from holdfast.core.study.trial import Trial
    from holdfast.tune.results.study_view import StudyInspection

TRIALS_MAX = 10  # that are printed when none is named
_ATTEMPT = re.compile(r"attempt-(\d+)\.log")


def trial_logs(study: StudyInspection, trial: Trial) -> dict[int, str]:
    """Return the logs of a trial by attempt, rising: with the study, or on its driver's machine."""
    folder = trial_log_folder(study, trial)
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    matches = [(name, _ATTEMPT.fullmatch(name)) for name in names]
    return dict(sorted((int(m[1]), os.path.join(folder, name)) for name, m in matches if m))


def trial_log_folder(study: StudyInspection, trial: Trial) -> str:
    """Return where the logs of a trial are."""
    from holdfast.control.host.log_folders import find_log_folder

    store = study.run.store
    if store.local is not None:
        return store.local.path(f"{trial.folder}/logs")
    return os.path.join(find_log_folder(store, study.run.identity.run_id), trial.folder, "logs")


def print_trial_logs(
    study: StudyInspection, trial: Trial | None, attempt: int | None, lines: int, *, as_json: bool
) -> None:
    """Print the end of a trial's log, or of those of a few trials; raise if there is none.

    Programs get those of all trials. For people, those that run come first, then those that failed.
    """
    from holdfast.control.host.worker_output import last_lines

    chosen = study.trials if trial is None else [trial]
    found = [(one, logs) for one in chosen if (logs := trial_logs(study, one))]
    if not found:
        raise _no_logs(study, trial)
    if trial is not None:
        paths = [(trial, *_of_attempt(found[0][1], attempt))]
    else:
        with_it = [(one, logs) for one, logs in found if attempt is None or attempt in logs]
        paths = [(one, *_of_attempt(logs, attempt)) for one, logs in with_it]
    if as_json:
        rows = [
            {
                "trial": one.trial_id,
                "name": str(one),
                "attempt": number,
                "path": path,
                "lines": last_lines(path, lines),
            }
            for one, number, path in paths
        ]
        print_json({"run": study.run.store.url, "logs": rows})
        return
    paths.sort(key=lambda row: _urgency(row[0]))
    for position, (one, number, path) in enumerate(paths[:TRIALS_MAX]):
        if len(paths) > 1:
            said = f"{one} ({one.status}), attempt {number}, {path}"
            say(("\n" if position else "") + f"==> {said} <==")
        for line in last_lines(path, lines):
            say_printed(line)
    if len(paths) > TRIALS_MAX:
        rest = f"{len(paths) - TRIALS_MAX} more trials have logs"
        say(f"\n… {rest}; name one: holdfast logs {study.run.store.url} {paths[-1][0]}")


def _urgency(trial: Trial) -> tuple[int, int]:
    order = ("RUNNING", "ERROR")
    status = str(trial.status)
    return order.index(status) if status in order else len(order), trial.number


def _of_attempt(logs: Mapping[int, str], attempt: int | None) -> tuple[int, str]:
    from holdfast.errors import ConfigError

    number = max(logs) if attempt is None else attempt
    if number not in logs:
        raise ConfigError(
            f"--attempt {number}: there are logs of attempt {', '.join(map(str, logs))}",
            hint="leave it out for the last one",
        )
    return number, logs[number]


def _no_logs(study: StudyInspection, trial: Trial | None) -> Exception:
    from holdfast.errors import ConfigError

    view, where = study.run, ""
    if view.store.local is None and view.lease is not None:
        where = f"; its last driver ran on {view.lease.owner.host}"
    of = f"trials of study {view.identity.name!r}" if trial is None else f"trial {trial}"
    return ConfigError(
        f"there are no logs of {of} on this machine{where}",
        hint="look on the machine that ran it" if where else "no trial has started yet",
    )

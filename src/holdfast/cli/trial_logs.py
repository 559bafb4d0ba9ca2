"""The log files of trials: finding and printing them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from holdfast.cli.output import print_json, say, say_printed

if TYPE_CHECKING:
    from holdfast.core.study.trial import Trial
    from holdfast.tune.results.study_view import StudyInspection

T = TypeVar("T")

TRIALS_MAX = 10  # printed when no trial is named
_ATTEMPT = re.compile(r"attempt-(\d+)\.log")


def trial_logs(study: StudyInspection, trial: Trial) -> dict[int, str]:
    """Return the logs of a trial by attempt, in order of attempts.

    They are in the folder of the study, or on the machine of its driver.
    """
    from holdfast.control.host.log_folders import find_log_folder

    store = study.run.store
    if store.local is not None:
        folder = store.local.path(f"{trial.folder}/logs")
    else:
        study_logs = find_log_folder(store, study.run.identity.run_id)
        folder = os.path.join(study_logs, trial.folder, "logs")
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    matches = [(name, _ATTEMPT.fullmatch(name)) for name in names]
    return dict(sorted((int(m[1]), os.path.join(folder, name)) for name, m in matches if m))


def print_trial_logs(
    study: StudyInspection, trial: Trial | None, attempt: int | None, lines: int, *, as_json: bool
) -> None:
    """Print the end of a trial's log, or of those of a few trials; raise if there is none.

    JSON has the logs of all trials. Text begins with running trials, then failed ones.
    """
    from holdfast.control.host.worker_output import last_lines

    candidates = study.trials if trial is None else [trial]
    with_logs = [(each, logs) for each in candidates if (logs := trial_logs(study, each))]
    if not with_logs:
        raise _no_logs(study, trial)
    if trial is None and attempt is not None:
        with_logs = [(each, logs) for each, logs in with_logs if attempt in logs]
    paths = [(each, *logs_of_attempt(logs, attempt)) for each, logs in with_logs]
    if as_json:
        rows = [
            {
                "trial": each.trial_id,
                "name": str(each),
                "attempt": number,
                "path": path,
                "lines": last_lines(path, lines),
            }
            for each, number, path in paths
        ]
        print_json({"run": study.run.store.url, "logs": rows})
        return
    paths.sort(key=lambda row: _urgency(row[0]))
    for position, (each, number, path) in enumerate(paths[:TRIALS_MAX]):
        if len(paths) > 1:
            title = f"{each} ({each.status}), attempt {number}, {path}"
            say(("\n" if position else "") + f"==> {title} <==")
        for line in last_lines(path, lines):
            say_printed(line)
    if len(paths) > TRIALS_MAX:
        rest = f"{len(paths) - TRIALS_MAX} more trials have logs"
        say(f"\n… {rest}; name one: holdfast logs {study.run.store.url} {paths[-1][0]}")


def _urgency(trial: Trial) -> tuple[int, int]:
    order = ("RUNNING", "ERROR")
    status = str(trial.status)
    return order.index(status) if status in order else len(order), trial.number


def logs_of_attempt(logs: Mapping[int, T], attempt: int | None) -> tuple[int, T]:
    """Return the logs of an attempt, or of the last for None, with its number; raise if none."""
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
    subject = f"trials of study {view.identity.name!r}" if trial is None else f"trial {trial}"
    return ConfigError(
        f"there are no logs of {subject} on this machine{where}",
        hint="look on the machine that ran it" if where else "no trial has started yet",
    )

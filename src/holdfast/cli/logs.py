"""`holdfast logs`: the output of a run's workers, or of a study's trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import print_json, say, say_printed
from holdfast.cli.subject import StudySubject, TrialSubject, subject_at
from holdfast.cli.trial_logs import logs_of_attempt, print_trial_logs

if TYPE_CHECKING:
    from holdfast.control.record.run_view import RunView


@click.command()
@click.argument("run")
@click.argument("trial", required=False)
@click.option("--rank", type=click.IntRange(0), help="Only this rank's; all ranks if left out.")
@click.option("--attempt", type=click.IntRange(1), help="Which attempt; the last if left out.")
@click.option(
    "-n", "--lines", type=click.IntRange(1), default=100, show_default=True,
    help="How many lines of each log, from its end.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def logs(
    run: str, trial: str | None, rank: int | None, attempt: int | None, lines: int, as_json: bool
) -> None:
    """Print the end of the logs of the run at RUN, a run's folder or URI.

    For a study, print those of the TRIAL with that id or name, or of a few trials. Logs are plain
    files, {run}/logs/attempt-{a}/rank-{r}.log, or {trial}/logs/attempt-{a}.log. For a run on an
    object store, they are on the machine of its driver. Exits 0, or 3 if there are none.
    """
    from holdfast.control.host.worker_output import last_lines
    from holdfast.errors import ConfigError

    subject = subject_at(run)
    if not isinstance(subject, StudySubject) and trial is not None:
        raise ConfigError(f"{run} is no study, so it has no trial {trial!r}", hint="leave it out")
    if isinstance(subject, StudySubject | TrialSubject):
        if rank is not None:
            raise ConfigError(f"--rank {rank}: a trial has one log", hint="leave it out")
        chosen = subject.trial if isinstance(subject, TrialSubject) else None
        if trial is not None:
            chosen = subject.study.trial(trial)
        print_trial_logs(subject.study, chosen, attempt, lines, as_json=as_json)
        return
    attempt, paths = _chosen(subject, attempt, rank)
    if as_json:
        rows = [
            {"rank": number, "path": path, "lines": last_lines(path, lines)}
            for number, path in paths.items()
        ]
        print_json({"run": subject.store.url, "attempt": attempt, "logs": rows})
        return
    for position, (number, path) in enumerate(paths.items()):
        if len(paths) > 1:
            say(("\n" if position else "") + f"==> rank {number}, {path} <==")
        for line in last_lines(path, lines):
            say_printed(line)


def _chosen(view: RunView, attempt: int | None, rank: int | None) -> tuple[int, Mapping[int, str]]:
    """Return the requested attempt and its logs by rank; raise, naming those that exist."""
    from holdfast.control.host.log_folders import find_log_folder
    from holdfast.control.host.worker_output import find_logs
    from holdfast.core.log_lines import ranks_text
    from holdfast.errors import ConfigError

    folder = find_log_folder(view.store, view.identity.run_id)
    logs_by_attempt = find_logs(folder)
    if not logs_by_attempt:
        where = ""
        if view.store.local is None and view.lease is not None:
            where = f"; its last driver ran on {view.lease.owner.host}"
        raise ConfigError(
            f"there are no logs of run {view.identity.name!r} in {folder} on this machine{where}",
            hint="look on the machine that ran it" if where else "start the run first",
        )
    attempt, ranks = logs_of_attempt(logs_by_attempt, attempt)
    if rank is None:
        return attempt, ranks
    if rank not in ranks:
        raise ConfigError(
            f"--rank {rank}: in attempt {attempt} there are logs of {ranks_text(ranks)}",
            hint="leave it out for all of them",
        )
    return attempt, {rank: ranks[rank]}

"""`holdfast logs`: what the workers of a run, or the trials of a study, have printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import print_json, say, say_printed
from holdfast.cli.subject import StudySubject, TrialSubject, subject_at
from holdfast.cli.trial_logs import print_trial_logs

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

    Of a study: those of the TRIAL with that id or name, or a few of all. Logs are plain files,
    {run}/logs/attempt-{a}/rank-{r}.log, of a trial {trial}/logs/attempt-{a}.log. Those of a run on
    an object store are on the machine its driver ran on. Exits 0, or 3 if there are none.
    """
    from holdfast.control.host.worker_output import last_lines
    from holdfast.errors import ConfigError

    subject = subject_at(run)
    if not isinstance(subject, StudySubject) and trial is not None:
        raise ConfigError(f"{run} is no study, so it has no trial {trial!r}", hint="leave it out")
    if isinstance(subject, StudySubject | TrialSubject):
        if rank is not None:
            raise ConfigError(f"--rank {rank}: a trial has one log", hint="leave it out")
        of = subject.trial if isinstance(subject, TrialSubject) else None
        of = subject.study.trial(trial) if trial is not None else of
        print_trial_logs(subject.study, of, attempt, lines, as_json=as_json)
        return
    view = subject
    attempt, paths = _chosen(view, attempt, rank)
    found = {number: last_lines(path, lines) for number, path in paths.items()}
    if as_json:
        rows = [{"rank": number, "path": paths[number], "lines": found[number]} for number in paths]
        print_json({"run": view.store.url, "attempt": attempt, "logs": rows})
        return
    for position, (number, path) in enumerate(paths.items()):
        if len(paths) > 1:
            say(("\n" if position else "") + f"==> rank {number}, {path} <==")
        for line in found[number]:
            say_printed(line)


def _chosen(view: RunView, attempt: int | None, rank: int | None) -> tuple[int, Mapping[int, str]]:
    """Return the logs that were asked for; raise an error that names those there are."""
    from holdfast.control.host.log_folders import find_log_folder
    from holdfast.control.host.worker_output import find_logs
    from holdfast.core.log_lines import ranks_text
    from holdfast.errors import ConfigError

    folder = find_log_folder(view.store, view.identity.run_id)
    found = find_logs(folder)
    if not found:
        where = ""
        if view.store.local is None and view.lease is not None:
            where = f"; its last driver ran on {view.lease.owner.host}"
        raise ConfigError(
            f"there are no logs of run {view.identity.name!r} in {folder} on this machine{where}",
            hint="look on the machine that ran it" if where else "start the run first",
        )
    if attempt is None:
        attempt = max(found)
    if attempt not in found:
        raise ConfigError(
            f"--attempt {attempt}: there are logs of attempt {', '.join(map(str, found))}",
            hint="leave it out for the last one",
        )
    ranks = found[attempt]
    if rank is None:
        return attempt, ranks
    if rank not in ranks:
        raise ConfigError(
            f"--rank {rank}: in attempt {attempt} there are logs of {ranks_text(ranks)}",
            hint="leave it out for all of them",
        )
    return attempt, {rank: ranks[rank]}

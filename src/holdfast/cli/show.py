"""`holdfast show`: the state of one run, study or trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import age, metrics, print_facts, print_json, problem_lines, say
from holdfast.cli.show_checkpoints import (
    checkpoint_facts,
    checkpoint_problems,
    print_checkpoints,
)
from holdfast.cli.show_study import holder, print_study, print_trial, study_facts, trial_facts
from holdfast.cli.subject import StudySubject, TrialSubject, subject_at

if TYPE_CHECKING:
    from holdfast.control.metrics.reader import History
    from holdfast.control.record.run_view import RunView
    from holdfast.core.run.machine import Run


@click.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def show(run: str, as_json: bool) -> None:
    """Show the run at RUN, a folder or URI: its state, its checkpoints, its problems.

    RUN may also be a study, or a trial in a study.
    """
    from holdfast.control.metrics.reader import read_metric_rows

    match subject_at(run):
        case StudySubject(study):
            print_json(study_facts(study)) if as_json else print_study(study)
            return
        case TrialSubject(study, trial):
            print_json(trial_facts(study, trial)) if as_json else print_trial(study, trial)
            return
        case view:
            pass
    history = read_metric_rows(view.store, view.record.kept.values())
    if as_json:
        print_json(_facts(view, history))
    else:
        _print(view, history)


def _facts(view: RunView, history: History) -> dict[str, object]:
    lease, run = view.lease, view.history.run
    return {
        "run": view.store.url,
        "name": view.identity.name,
        "id": view.identity.run_id,
        "kind": view.identity.kind,
        "created": view.identity.created,
        "state": view.state,
        "status": view.status,
        "attempts": run.attempts,
        "losses": _losses(run),
        "failure": _failure(run),
        "epoch": view.record.epoch,
        "holder": str(lease.owner) if lease else None,
        "renewed": lease.renewed if lease else None,
        "reports": len(history.rows),
        "last_report": _last_report(history),
        "logs": _logs(view),
        "checkpoints": checkpoint_facts(view.record),
        "journal_damage": view.journal_damage,
        "metric_damage": history.damages,
        "unreadable": view.unreadable,
    }


def _last_report(history: History) -> dict[str, object] | None:
    if not history.rows:
        return None
    row = history.rows[-1]
    return {"step": row.step, "attempt": row.attempt, "time": row.time, "metrics": row.metrics}


def _losses(run: Run) -> dict[str, int]:
    """Return how many groups were lost, by cause, under all drivers together."""
    from holdfast.core.run.outcomes import Blame

    total = {kind: run.lost_before.get(kind, 0) + run.losses.get(kind, 0) for kind in Blame}
    return {str(kind): count for kind, count in total.items() if count}


def _failure(run: Run) -> str | None:
    """Return one line on how the last group was lost, None if there was no loss."""
    from holdfast.core.run.machine import Ending, Over
    from holdfast.core.run.signature import in_words

    if isinstance(run.phase, Over) and run.phase.ending is Ending.FAILED:
        culprits = [ended.describe() for ended in run.phase.exits if ended.has_failed]
        if culprits:
            return " ".join("; ".join(culprits).split())
    return in_words(run.signature) if run.signature else None


def _logs(view: RunView) -> Mapping[int, Mapping[int, str]]:
    from holdfast.control.host.log_folders import find_log_folder
    from holdfast.control.host.worker_output import find_logs

    return find_logs(find_log_folder(view.store, view.identity.run_id))


# ---------------------------------------------------------------------- for people


def _print(view: RunView, history: History) -> None:
    run = view.history.run
    facts: dict[str, object] = {
        "run": view.identity.name,
        "at": view.store.url,
        "kind": view.identity.kind,
        "state": view.status,
        "created": f"{age(view.identity.created)} ago",
        **holder(view),
    }
    if run.attempts:
        losses = _losses(run)
        causes = ", ".join(f"{cause} {count}" for cause, count in losses.items())
        lost = f", {sum(losses.values())} lost ({causes})" if losses else ""
        facts["attempts"] = f"{run.attempts}{lost}"
    if failure := _failure(run):
        facts["last failure"] = failure
    if history.rows:
        last = history.rows[-1]
        reports = f"{len(history.rows)}, the last {age(last.time)} ago at step {last.step}"
        facts["reports"] = f"{reports}: {metrics(last.metrics)}" if last.metrics else reports
    facts |= _log_facts(view)
    print_facts(facts)
    say()
    print_checkpoints(view.record)
    for line in problem_lines(list(_problems(view, history)), view.store.url):
        say(line)


def _log_facts(view: RunView) -> dict[str, object]:
    logs = _logs(view)
    if not logs:
        return {}
    [first, *rest] = logs[max(logs)].values()
    return {"logs": first + (f" and {len(rest)} more" if rest else "")}


def _problems(view: RunView, history: History) -> Iterator[str]:
    yield from (f"journal: {damage}" for damage in view.journal_damage)
    yield from (f"metrics: {damage}" for damage in history.damages)
    yield from checkpoint_problems(view)

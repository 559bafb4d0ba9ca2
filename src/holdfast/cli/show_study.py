"""A study, or one of its trials, in `holdfast show`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.cli.output import age, metrics, print_facts, problem_lines, say
from holdfast.cli.show_checkpoints import (
    checkpoint_facts,
    checkpoint_problems,
    print_checkpoints,
)
from holdfast.cli.trial_logs import trial_logs
from holdfast.core.plain_data import as_loose_json

if TYPE_CHECKING:
    from holdfast.control.record.run_view import RunView
    from holdfast.core.study.trial import Trial
    from holdfast.tune.results.study_view import StudyInspection

_ROWS_MAX = 20
_ERRORS_MAX = 10


# ---------------------------------------------------------------------- for programs


def study_facts(study: StudyInspection) -> dict[str, object]:
    """Return the facts of a study and all its trials."""
    from holdfast.tune.study.fork import read_origin

    view, best = study.run, study.best()
    metric, mode = study.metric
    origin = read_origin(view.store)
    return {
        "run": view.store.url,
        "name": view.identity.name,
        "id": view.identity.run_id,
        "kind": "tune",
        "created": view.identity.created,
        "forked_from": None if origin is None else dataclasses.asdict(origin),
        "state": view.state,
        "status": study.status,
        "epoch": view.record.epoch,
        "holder": str(view.lease.owner) if view.lease else None,
        "renewed": view.lease.renewed if view.lease else None,
        "trainable": study.stored.trainable if study.stored else None,
        "searcher": study.judge("search_alg"),
        "scheduler": study.judge("scheduler"),
        "metric": metric,
        "mode": mode,
        "best": None if best is None else _best_facts(study, best.name, best.value),
        "counts": dict(study.counts),
        "planned": study.planned,
        "trials": [_trial_row(trial) for trial in study.trials],
        "give_again": list(study.stored.not_kept) if study.stored else [],
        "journal_damage": view.journal_damage,
        "damage": dict(study.damage),
        "unsure": study.unsure,
    }


def trial_facts(study: StudyInspection, trial: Trial) -> dict[str, object]:
    """Return the facts of a trial."""
    view = study.view_of(trial)
    return {
        "run": view.store.url,
        "kind": "trial",
        "study": study.run.store.url,
        "study_name": study.run.identity.name,
        "study_status": study.status,
        **_trial_row(trial),
        "checkpoints": checkpoint_facts(view.record),
        "logs": trial_logs(study, trial),
        "journal_damage": study.run.journal_damage,
        "unreadable": view.unreadable,
        "unsure": study.unsure,
    }


def _best_facts(study: StudyInspection, name: str, value: float) -> dict[str, object]:
    trial = study.trial(name)
    params = trial.evaluated_params or trial.config
    return {"trial": trial.trial_id, "name": name, "value": value, "params": as_loose_json(params)}


def _trial_row(trial: Trial) -> dict[str, object]:
    return {
        "trial": trial.trial_id,
        "name": str(trial),
        "number": trial.number,
        "status": str(trial.status),
        "cut_off": trial.cut_off,
        "folder": trial.folder,
        "config": as_loose_json(trial.config),
        "params": as_loose_json(trial.evaluated_params),
        "tag": trial.experiment_tag,
        "step": trial.step,
        "last_result": as_loose_json(trial.last_result),
        "attempts": trial.run.attempts,
        "failures": trial.failures(),
        "started": trial.started_at,
        "error": trial.error,
        "checkpoints": checkpoint_facts(trial.checkpoints),
    }


# ---------------------------------------------------------------------- for people


def print_study(study: StudyInspection) -> None:
    """Print a study: its state, its trials, its problems, and how to resume it."""
    from holdfast.tune.outputs.tables import Layout, Progress, as_text, error_table, trial_table

    print_facts(_study_facts(study))
    say()
    metric, mode = study.metric
    layout = Layout(rows_max=_ROWS_MAX, sort_by=metric if mode else None, mode=mode or "max")
    progress = Progress(trials=study.trials, counts=study.counts, now=time.time())
    if study.trials:
        say(as_text(trial_table(progress, layout)))
    else:
        say("no trials yet")
    errors = error_table(study.trials, _ERRORS_MAX)
    if errors.rows:
        say(f"\n{as_text(errors)}")
    lines = problem_lines(list(_problems(study)), study.run.store.url)
    if study.unsure is not None:
        lines.append(f"The last decisions may not be known: {study.unsure}.")
    lines += _how_to_resume(study)
    if lines:
        say("\n" + "\n".join(lines))


def _study_facts(study: StudyInspection) -> dict[str, object]:
    from holdfast.tune.outputs.tables import best_line, status_line
    from holdfast.tune.study.fork import read_origin

    view, best = study.run, study.best()
    metric, mode = study.metric
    facts: dict[str, object] = {
        "study": view.identity.name,
        "at": view.store.url,
        "state": study.status,
        "created": f"{age(view.identity.created)} ago",
        **holder(view),
        "trials": status_line(study.counts, study.planned).removeprefix("Trials: "),
    }
    if (origin := read_origin(view.store)) is not None:
        facts["forked from"] = f"{origin.name!r}, which was at {origin.url} then"
    if study.stored is not None:
        facts["trainable"] = study.stored.trainable
    facts["searcher"] = study.judge("search_alg") or "the usual one: grids and random samples"
    facts["scheduler"] = study.judge("scheduler") or "the usual one: all trials run to their end"
    if metric is not None:
        facts["metric"] = f"{metric}, {mode} is best" if mode else metric
    if best is not None:
        facts["best"] = best_line(best).removeprefix("Best so far: ")
    return facts


def holder(view: RunView) -> dict[str, object]:
    """Return the driver that holds a run, or held it last, as a fact; empty if there was none."""
    if view.lease is None:
        return {}
    verb = "held by" if view.is_live else "last held by"
    return {verb: f"{view.lease.owner}, {age(view.lease.renewed)} ago"}


def _problems(study: StudyInspection) -> Iterator[str]:
    yield from (f"journal: {damage}" for damage in study.run.journal_damage)
    for key, problems in study.damage.items():
        yield from (f"{key}: {problem}" for problem in problems)
    for trial in study.trials:
        for entry in trial.checkpoints.quarantined():
            yield f"{trial.folder}/{entry.directory}: {'; '.join(entry.problems)}"


def _how_to_resume(study: StudyInspection) -> Iterator[str]:
    if study.run.is_live or study.stored is None:
        return
    arguments = f"{study.run.store.url!r}, {study.stored.trainable}"
    for config in ("TuneConfig", "RunConfig"):
        fields = [field for field in study.stored.not_kept if field.startswith(f"{config}.")]
        if fields:
            names = ", ".join(f"{field.partition('.')[2]}=…" for field in fields)
            name = "tune_config" if config == "TuneConfig" else "run_config"
            arguments += f", {name}={config}({names})"
    if not study.is_over or any(trial.cut_off for trial in study.trials):
        yield f"To go on: Tuner.restore({arguments}).fit()"
    if study.counts.get("ERROR"):
        yield f"To try again what failed: Tuner.restore({arguments}, resume_errored=True).fit()"


def _attempts(trial: Trial) -> str:
    failures = trial.failures()
    failed = f"; {failures} of them failed" if failures else ""
    return f"{trial.run.attempts}{failed}"


def print_trial(study: StudyInspection, trial: Trial) -> None:
    """Print a trial: its state, its last result, its checkpoints and its problems."""
    from holdfast.tune.result import AUTO_RESULT_KEYS

    view, logs = study.view_of(trial), trial_logs(study, trial)
    cut_off = ", cut off" if trial.cut_off else ""
    facts: dict[str, object] = {
        "trial": str(trial),
        "of study": f"{study.run.identity.name} at {study.run.store.url}, {study.status}",
        "at": view.store.url,
        "state": f"{trial.status}{cut_off}",
        "attempts": _attempts(trial),
        "config": metrics(trial.config, most=12) or "none",
    }
    if trial.last_result and trial.step:  # without a report, its result says only that it is done
        reported = {k: v for k, v in trial.last_result.items() if k not in AUTO_RESULT_KEYS}
        facts["last result"] = f"step {trial.step}: {metrics(reported, most=8)}"
    if trial.error:
        facts["error"] = " ".join(trial.error.split())
    if logs:
        facts["log"] = logs[max(logs)]
    print_facts(facts)
    say()
    print_checkpoints(view.record, AUTO_RESULT_KEYS)
    problems = list(checkpoint_problems(view))
    problems += [f"journal of the study: {damage}" for damage in study.run.journal_damage]
    for line in problem_lines(problems, view.store.url):
        say(line)

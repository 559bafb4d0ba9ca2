"""`holdfast verify`: reads every byte of a run, a study or a trial, and reports damage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import EXIT_DAMAGED, EXIT_UNUSABLE, print_json, say, size
from holdfast.cli.subject import StudySubject, TrialSubject, subject_at
from holdfast.core.quantities import counted

if TYPE_CHECKING:
    from holdfast.control.record.run_view import RunView, Verification
    from holdfast.storage.parallel import Progress
    from holdfast.tune.results.study_view import StudyInspection
    from holdfast.tune.results.upkeep import StudyVerification


@click.command()
@click.argument("run")
@click.option(
    "--restore", is_flag=True, help="Use quarantined checkpoints again if they are whole."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def verify(run: str, restore: bool, as_json: bool) -> None:
    """Read every byte of the run at RUN and report what is damaged.

    For a study, the checkpoints of all its trials are read; RUN may also be the folder of a trial.
    Nothing is changed, except with --restore: then quarantined checkpoints that are whole count
    again; this is refused while a driver holds the run.

    Exits 0 if nothing is damaged, 1 if something is, 3 if something cannot be read.
    """
    from holdfast.control.record import run_view
    from holdfast.storage.parallel import Watch
    from holdfast.tune.results.upkeep import verify_study, verify_trial

    restored = _restored(run) if restore else []
    subject = subject_at(run)
    watched = sys.stderr.isatty() and not as_json
    watch = Watch(on_progress=_print_progress if watched else None)
    result: Verification
    match subject:
        case StudySubject(study):
            view, result = study.run, (verified := verify_study(study, watch))
            extra: dict[str, object] = {"trials": verified.trials}
            notes = _study_notes(study, verified)
        case TrialSubject(study, trial):
            view = study.view_of(trial)
            result = verify_trial(study, trial, view, watch)
            extra = {"study": study.run.store.url, "trial": trial.trial_id}
            notes = _run_notes(view, result, None if trial.is_finished() else "trial")
        case view:
            result = run_view.verify(view, watch)
            extra, notes = {}, _run_notes(view, result, "run")
    if watched:
        click.echo("\r\033[K", nl=False, err=True)
    if as_json:
        print_json(_facts(view, result) | extra | ({"restored": restored} if restore else {}))
    else:
        _print(view, result, extra.get("trials"), notes)
        for directory in restored:
            say(f"  restored     {directory}: it is whole, and counts again")
        if result.restorable:
            say(f"  Try: holdfast verify --restore {view.store.url}")
        if result.litter:
            say(f"  Try: holdfast gc {extra.get('study', view.store.url)}")
    if result.damaged or result.unread:
        sys.exit(EXIT_DAMAGED if result.damaged else EXIT_UNUSABLE)


def _restored(path: str) -> list[str]:
    """Readmit the quarantined checkpoints at `path` that are whole, and return their folders."""
    from holdfast.control.record.identity import find_identity
    from holdfast.control.record.open_run import open_run
    from holdfast.storage.locate import open_store
    from holdfast.tune.results.study_view import is_study, study_above
    from holdfast.tune.results.upkeep import readmit_in_study

    store, folder = open_store(path), None
    if not is_study(store) and (above := study_above(path)) is not None:
        store, folder = above
    name = find_identity(store)[0].name  # raises if there is no run; opening would create one
    if is_study(store):
        return readmit_in_study(store, name, folder)
    with open_run(store, name=name, patient=False) as run:
        return run.readmit()


def _print_progress(progress: Progress) -> None:
    done, total = size(progress.bytes_done), size(progress.bytes_total)
    click.echo(f"\r\033[Kreading {done} of {total}", nl=False, err=True)


def _facts(view: RunView, result: Verification) -> dict[str, object]:
    return {
        "run": view.store.url,
        "state": view.state,
        "checkpoints": result.checkpoints,
        "files": result.files,
        "bytes": result.size,
        "damaged": result.damaged,
        "unread": result.unread,
        "quarantined": result.quarantined,
        "restorable": result.restorable,
        "foreign": result.foreign,
        "litter": [
            {"key": item.key, "bytes": item.size, "why": item.why} for item in result.litter
        ],
    }


def _print(view: RunView, result: Verification, trials: object, notes: Iterator[str]) -> None:
    counts = [counted(result.checkpoints, "checkpoint"), counted(result.files, "file")]
    if isinstance(trials, int):
        counts.insert(0, counted(trials, "trial"))
    read = ", ".join([*counts, size(result.size)])
    verdict = "DAMAGED" if result.damaged else "NOT READ" if result.unread else "whole"
    say(f"{verdict}: {view.store.url} ({read} read)")
    for key, problems in result.damaged.items():
        for problem in problems:
            say(f"  damaged      {key}: {problem}")
    for key, problem in result.unread.items():
        say(f"  not read     {key}: {problem}")
    for directory, problems in result.quarantined.items():
        now = "; it is whole now" if directory in result.restorable else ""
        say(f"  quarantined  {directory}: {'; '.join(problems)}{now}")
    for key in result.foreign:
        say(f"  not ours     {key}")
    for item in result.litter:
        say(f"  litter       {item.key} ({size(item.size)}): {item.why}")
    for note in notes:
        say(f"  {note}")


def _run_notes(view: RunView, result: Verification, kind: str | None) -> Iterator[str]:
    """Yield where a damaged run or trial resumes from; nothing if `kind` is None: it is over."""
    if result.damaged and kind is not None:
        usable = [k for k in view.record.usable() if k.directory not in result.damaged]
        newest = usable[0].directory if usable else "the beginning: no checkpoint is whole"
        yield f"The {kind} resumes from {newest}."


def _study_notes(study: StudyInspection, result: StudyVerification) -> Iterator[str]:
    for trial, directory in result.resumes.items():
        yield f"{trial} resumes from {directory or 'the beginning: no checkpoint is whole'}."
    if study.unsure is not None:
        yield f"The last decisions may not be known: {study.unsure}."

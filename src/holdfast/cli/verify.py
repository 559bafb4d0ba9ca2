"""`holdfast verify`: read every byte of a run again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import EXIT_DAMAGED, print_json, size

if TYPE_CHECKING:
    from holdfast.control.run_view import RunView, Verification
    from holdfast.storage.watching import Progress


@click.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def verify(run: str, as_json: bool) -> None:
    """Read every byte of the run at RUN again and say what is not as it was saved.

    Exits 0 if nothing is damaged, 1 if something is, 3 if the run cannot be read.
    """
    from holdfast.control import run_view
    from holdfast.storage.locate import open_store
    from holdfast.storage.watching import Watch

    view = run_view.look(open_store(run))
    watched = sys.stderr.isatty() and not as_json
    result = run_view.verify(view, Watch(on_progress=_print_progress if watched else None))
    if watched:
        click.echo("\r\033[K", nl=False, err=True)
    if as_json:
        print_json(_facts(view, result))
    else:
        _print(view, result)
    if result.damaged:
        sys.exit(EXIT_DAMAGED)


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
        "quarantined": result.quarantined,
        "foreign": result.foreign,
        "litter": [{"key": one.key, "bytes": one.size, "why": one.why} for one in result.litter],
    }


def _print(view: RunView, result: Verification) -> None:
    read = f"{result.checkpoints} checkpoints, {result.files} files, {size(result.size)}"
    verdict = "DAMAGED" if result.damaged else "whole"
    click.echo(f"{verdict}: {view.store.url} ({read} read)")
    for key, problems in result.damaged.items():
        for problem in problems:
            click.echo(f"  damaged      {key}: {problem}")
    for directory, problems in result.quarantined.items():
        click.echo(f"  quarantined  {directory}: {'; '.join(problems)}")
    for key in result.foreign:
        click.echo(f"  not ours     {key}")
    for one in result.litter:
        click.echo(f"  litter       {one.key} ({size(one.size)}): {one.why}")
    if result.damaged:
        usable = [k for k in view.record.usable() if k.directory not in result.damaged]
        newest = usable[0].directory if usable else "the beginning: no checkpoint is whole"
        click.echo(f"  The run resumes from {newest}.")
    if result.litter:
        click.echo(f"  Try: holdfast gc {view.store.url}")

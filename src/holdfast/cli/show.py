"""`holdfast show`: what is known of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.output import age, metrics, print_facts, print_json, print_table

if TYPE_CHECKING:
    from holdfast.control.run_view import RunView


@click.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def show(run: str, as_json: bool) -> None:
    """Show the run at RUN, a run's folder or URI: who holds it, its checkpoints, what is wrong."""
    from holdfast.control.run_view import look
    from holdfast.storage.locate import open_store

    view = look(open_store(run))
    if as_json:
        print_json(_facts(view))
    else:
        _print(view)


def _facts(view: RunView) -> dict[str, object]:
    lease = view.lease
    return {
        "run": view.store.url,
        "name": view.identity.name,
        "id": view.identity.run_id,
        "kind": view.identity.kind,
        "created": view.identity.created,
        "state": view.state,
        "epoch": view.record.epoch,
        "holder": str(lease.owner) if lease else None,
        "renewed": lease.renewed if lease else None,
        "checkpoints": [
            {
                "directory": kept.directory,
                "number": kept.number,
                "step": kept.step,
                "attempt": kept.attempt,
                "created": kept.created,
                "metrics": kept.metrics,
                "pins": list(kept.pins),
                "quarantined": list(kept.problems),
            }
            for kept in sorted(view.record.kept.values(), key=lambda kept: kept.number)
        ],
        "journal_damage": view.journal_damage,
        "unreadable": view.unreadable,
    }


def _print(view: RunView) -> None:
    lease = view.lease
    verb = "held by" if view.is_live else "last held by"
    facts: dict[str, object] = {
        "run": view.identity.name,
        "at": view.store.url,
        "kind": view.identity.kind,
        "state": view.state,
        "created": f"{age(view.identity.created)} ago",
    }
    if lease is not None:
        facts[verb] = f"{lease.owner}, {age(lease.renewed)} ago, epoch {lease.epoch}"
    print_facts(facts)
    rows = [
        (
            kept.directory,
            "-" if kept.step is None else kept.step,
            f"{age(kept.created)} ago",
            "quarantined" if kept.problems else "pinned" if kept.pins else "",
            metrics(kept.metrics),
        )
        for kept in sorted(view.record.kept.values(), key=lambda kept: kept.number)
    ]
    click.echo()
    if rows:
        print_table(("CHECKPOINT", "STEP", "SAVED", "", "METRICS"), rows)
    else:
        click.echo("no checkpoints yet")
    wrong = [f"journal: {what}" for what in view.journal_damage]
    wrong += [f"{folder}: {reason}" for folder, reason in view.unreadable.items()]
    wrong += [f"{k.directory}: {'; '.join(k.problems)}" for k in view.record.quarantined()]
    for problem in wrong:
        click.echo(f"  ! {problem}")
    if wrong:
        click.echo(f"  Try: holdfast verify {view.store.url}")

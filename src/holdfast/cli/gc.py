"""`holdfast gc`: remove what crashes left behind."""

from __future__ import annotations

import click

from holdfast.cli.output import print_json, size


@click.command()
@click.argument("run")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def gc(run: str, dry_run: bool, as_json: bool) -> None:
    """Remove what crashes left behind in the run at RUN; checkpoints are never touched.

    Refuses while a driver holds the run. Exits 0, or 3 if the run cannot be had.
    """
    from holdfast.control.identity import find_identity
    from holdfast.control.open_run import open_run
    from holdfast.control.run_view import look
    from holdfast.control.upkeep import find_litter, sweep
    from holdfast.storage.locate import open_store

    store = open_store(run)
    identity, _ = find_identity(store)
    if dry_run:
        view = look(store)
        begun = view.record.begun if view.is_live else {}
        found = find_litter(store, identity.run_id, view.record, in_flight=set(begun))
    else:
        with open_run(store, name=identity.name) as held:
            found = sweep(held)
    total = sum(one.size for one in found)
    if as_json:
        rows = [{"key": one.key, "bytes": one.size, "why": one.why} for one in found]
        print_json({"run": store.url, "removed": not dry_run, "bytes": total, "litter": rows})
        return
    verb = "would remove" if dry_run else "removed"
    for one in found:
        click.echo(f"  {one.key} ({size(one.size)}): {one.why}")
    click.echo(f"{verb} {len(found)} things, {size(total)}, from {store.url}")

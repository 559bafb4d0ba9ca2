"""`holdfast gc`: remove what crashes left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.output import print_json, say, size

if TYPE_CHECKING:
    from holdfast.control.record.litter import Litter
    from holdfast.storage.base import Store


@click.command()
@click.argument("run")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def gc(run: str, dry_run: bool, as_json: bool) -> None:
    """Remove what crashes left behind in the run or study at RUN; checkpoints are never touched.

    Refuses while a driver holds the run. Exits 0, or 3 if the run cannot be used.
    """
    from holdfast.core.quantities import counted
    from holdfast.errors import ConfigError
    from holdfast.storage.locate import open_store
    from holdfast.tune.results.study_view import is_study, study_above

    store = open_store(run)
    if is_study(store):
        litter = _study_litter(store, dry_run=dry_run)
    elif (above := study_above(run)) is not None:
        raise ConfigError(
            f"{store.url} is the folder of a trial, which is cleaned up with its study",
            hint=f"holdfast gc {above[0].url}",
        )
    else:
        litter = _run_litter(store, dry_run=dry_run)
    total = sum(item.size for item in litter)
    if as_json:
        rows = [{"key": item.key, "bytes": item.size, "why": item.why} for item in litter]
        print_json({"run": store.url, "removed": not dry_run, "bytes": total, "litter": rows})
        return
    verb = "would remove" if dry_run else "removed"
    for item in litter:
        say(f"  {item.key} ({size(item.size)}): {item.why}")
    say(f"{verb} {counted(len(litter), 'object')}, {size(total)}, from {store.url}")


def _run_litter(store: Store, *, dry_run: bool) -> list[Litter]:
    from holdfast.control.record.identity import find_identity
    from holdfast.control.record.litter import find_litter, sweep
    from holdfast.control.record.open_run import open_run
    from holdfast.control.record.run_view import look

    identity, _ = find_identity(store)
    if dry_run:
        view = look(store)
        begun = view.record.begun if view.is_live else {}
        is_damaged = bool(view.journal_damage)
        return find_litter(
            store, identity.run_id, view.record, in_flight=set(begun), is_damaged=is_damaged
        )
    with open_run(store, name=identity.name, patient=False) as held:
        return sweep(held)


def _study_litter(store: Store, *, dry_run: bool) -> list[Litter]:
    from holdfast.control.record.identity import find_identity
    from holdfast.tune.results.study_view import inspect_study
    from holdfast.tune.results.upkeep import find_study_litter, sweep_study

    if dry_run:
        return find_study_litter(inspect_study(store))
    return sweep_study(store, find_identity(store)[0].name)

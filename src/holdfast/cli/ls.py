"""`holdfast ls`: the runs at a storage path."""

from __future__ import annotations

import click

from holdfast.cli.output import age, print_json, print_table


@click.command()
@click.argument("storage")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def ls(storage: str, as_json: bool) -> None:
    """List the runs at STORAGE, a folder or a URI such as s3://bucket/runs."""
    from holdfast.control.run_view import find_runs, look
    from holdfast.errors import Damaged, HoldfastError
    from holdfast.storage.locate import child, open_store

    store = open_store(storage)
    store.probe(writable=False)
    rows = []
    for folder, identity in find_runs(store):
        row: dict[str, object] = {"name": folder}
        try:
            if isinstance(identity, Damaged):
                raise identity
            view = look(child(store, folder))
        except HoldfastError as error:
            unreadable = {"state": "unreadable", "status": "unreadable"}
            rows.append({**row, **unreadable, "problem": error.message})
            continue
        newest = next(iter(view.record.usable()), None)
        row |= {
            "kind": identity.kind,
            "state": view.state,
            "status": view.status,
            "checkpoints": len(view.record.usable()),
            "newest": newest.directory if newest else None,
            "step": newest.step if newest else None,
            "saved": newest.created if newest else None,
            "created": identity.created,
        }
        rows.append(row)
    if as_json:
        print_json({"storage": store.url, "runs": rows})
        return
    if not rows:
        click.echo(f"no runs at {store.url}")
        return
    print_table(
        ("NAME", "KIND", "STATUS", "CHECKPOINTS", "NEWEST", "STEP", "SAVED"),
        [
            (
                row["name"],
                row.get("kind", "-"),
                row["status"],
                row.get("checkpoints", "-"),
                row.get("newest") or "-",
                "-" if row.get("step") is None else row["step"],
                f"{age(saved)} ago" if isinstance(saved := row.get("saved"), float) else "-",
            )
            for row in rows
        ],
    )

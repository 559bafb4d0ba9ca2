"""`holdfast ls`: the runs and studies at a storage path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.output import age, print_json, print_table, say

if TYPE_CHECKING:
    from holdfast.control.record.identity import RunIdentity
    from holdfast.control.record.run_view import RunView
    from holdfast.core.checkpoint.record import Kept
    from holdfast.tune.results.study_view import StudyInspection

COLUMNS = ("NAME", "KIND", "STATUS", "CHECKPOINTS", "NEWEST", "STEP", "SAVED")


@click.command()
@click.argument("storage")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def ls(storage: str, as_json: bool) -> None:
    """List the runs and studies at STORAGE, a folder or a URI such as s3://bucket/runs."""
    from holdfast.control.record.run_view import STRANGE, find_runs, look
    from holdfast.errors import HoldfastError, StoreBusy
    from holdfast.storage.locate import child, open_store
    from holdfast.tune.results.study_view import inspect_study, is_study

    store = open_store(storage)
    store.probe(writable=False)
    rows: list[dict[str, object]] = []
    for folder, identity in find_runs(store):
        row: dict[str, object] = {"name": folder}
        home = child(store, folder)
        try:
            if isinstance(identity, HoldfastError):
                raise identity
            if is_study(home):
                rows.append(row | _study_row(inspect_study(home)))
            else:
                rows.append(row | _run_row(look(home), identity))
        except StoreBusy:
            raise  # the other runs could not be read either
        except STRANGE as error:  # one bad run must not hide the others
            problem = error.message if isinstance(error, HoldfastError) else repr(error)
            unreadable = {"state": "unreadable", "status": "unreadable"}
            rows.append({**row, **unreadable, "problem": problem})
    if as_json:
        print_json({"storage": store.url, "runs": rows})
    elif rows:
        _print(rows)
    else:
        say(f"no runs at {store.url}")


def _run_row(view: RunView, identity: RunIdentity) -> dict[str, object]:
    usable = view.record.usable()
    return {
        "kind": identity.kind,
        "state": view.state,
        "status": view.status,
        **_checkpoints(len(usable), next(iter(usable), None)),
        "created": identity.created,
    }


def _study_row(study: StudyInspection) -> dict[str, object]:
    newest = filter(None, (trial.checkpoints.newest() for trial in study.trials))
    count = sum(len(trial.checkpoints.usable()) for trial in study.trials)
    best, (metric, mode) = study.best(), study.metric
    return {
        "kind": "tune",
        "state": study.run.state,
        "status": study.status,
        **_checkpoints(count, max(newest, key=lambda checkpoint: checkpoint.created, default=None)),
        "created": study.run.identity.created,
        "trials": sum(study.counts.values()),
        "planned": study.planned,
        "counts": dict(study.counts),
        "metric": metric,
        "mode": mode,
        "best": None if best is None else {"name": best.name, "value": best.value},
        "problems": [*study.run.journal_damage, *study.damage],
    }


def _checkpoints(count: int, newest: Kept | None) -> dict[str, object]:
    return {
        "checkpoints": count,
        "newest": newest.directory if newest else None,
        "step": newest.step if newest else None,
        "saved": newest.created if newest else None,
    }


def _print(rows: list[dict[str, object]]) -> None:
    has_studies = any("trials" in row for row in rows)
    study_columns = ("TRIALS", "BEST") if has_studies else ()
    print_table(
        (*COLUMNS, *study_columns),
        [
            (
                row["name"],
                row.get("kind", "-"),
                row["status"],
                row.get("checkpoints", "-"),
                row.get("newest") or "-",
                "-" if row.get("step") is None else row["step"],
                f"{age(saved)} ago" if isinstance(saved := row.get("saved"), float) else "-",
                *((_trials(row), _best(row)) if has_studies else ()),
            )
            for row in rows
        ],
    )
    for row in rows:
        if "problem" in row:
            say(f"  ! {row['name']}: {row['problem']}")


def _trials(row: dict[str, object]) -> str:
    counts = row.get("counts")
    if not isinstance(counts, dict):
        return "-"
    each = ", ".join(f"{count} {status}" for status, count in counts.items())
    damaged = ", damaged" if row["problems"] else ""
    planned = row.get("planned")
    count = (
        f"{row['trials']}" if planned in (None, row["trials"]) else f"{row['trials']} of {planned}"
    )
    return f"{count} ({each}{damaged})" if each or damaged else count


def _best(row: dict[str, object]) -> str:
    best = row.get("best")
    return f"{best['name']} {row['metric']}={best['value']:.4g}" if isinstance(best, dict) else "-"

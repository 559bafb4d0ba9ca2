"""Studies and runs at rest, written record by record: no process, no function of anybody's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.control.record.open_run import OpenStudy
from holdfast.storage.locate import open_store
from holdfast.storage.records import seal, unseal
from holdfast.tune.study.stored_spec import StoredStudy

Event = tuple[str, dict[str, Any]]

OPENED: Event = (
    "study_opened",
    {"rooms": {"here": {"CPU": 2.0}}, "resume_unfinished": True, "again": [], "needs": {}},
)


def added(trial_id: str, number: int = 0, config: Mapping[str, Any] | None = None) -> Event:
    """Return the event that a trial was made."""
    data = {
        "trial_id": trial_id,
        "number": number,
        "config": dict(config or {"x": number}),
        "params": {"x": number},
        "tag": f"{number}_x={number}",
        "trainable": "train",
        "name": None,
        "folder": f"train_{trial_id}",
        "resources": [{"CPU": 1.0}],
    }
    return "trial_added", data


def started(trial_id: str, attempt: int = 1, after_step: int = 0) -> Event:
    """Return the event that a process of a trial was started."""
    data = {"id": trial_id, "attempt": attempt, "places": ["here"], "after_step": after_step}
    return "trial_started", data | {"time": 1.7e9}


def result(trial_id: str, step: int, attempt: int = 1, **metrics: Any) -> Event:
    """Return the event that a trial has reported."""
    row = {"training_iteration": step, **metrics}
    return "trial_result", {"id": trial_id, "attempt": attempt, "step": step, "result": row}


def finished(trial_id: str, attempt: int = 1) -> Event:
    """Return the event that the process of a trial has ended in good order."""
    ended = {"kind": "finished", "rank": 0, "node": "here"}
    return "trial_exited", {"id": trial_id, "attempt": attempt, "exit": ended, "how": "done"}


def study_at_rest(
    folder: Path, events: Iterable[Event] | None = None, **fields: Any
) -> StoredStudy:
    """Write a study down as a driver would have that has gone; return what is kept of it."""
    if events is None:
        events = [OPENED, added("a1"), started("a1"), result("a1", 1, loss=0.5), finished("a1")]
    stored = StoredStudy(**{"trainable": "train", "keys": ["x"], "space": {"x": 1}, **fields})
    store = open_store(folder)
    with OpenStudy.open(store, name=folder.name) as run:
        stored.write(store)
        for kind, data in events:
            run.append(kind, data).wait()
    return stored


def rewrite(file: Path, **changes: Any) -> None:
    """Change a sealed record and seal it again, as an enemy would."""
    record = unseal(file.read_bytes().removesuffix(b"\n"))
    file.write_bytes(seal({**record, **changes}) + b"\n")

"""Runs for tests to look at: files to save, and a run that has saved them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.checkpoint.commit import deliver
from holdfast.control.record.open_run import OpenRun, open_run
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.storage.locate import open_store


def save_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files below a folder and return it."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def commit_to(run: OpenRun, *sources: Path, **facts: Any) -> Manifest:
    """Commit one checkpoint, a source folder for each rank, to a run that is open."""
    slot = run.begin_checkpoint(attempt=1)
    parts = [deliver(run.store, slot, rank, source) for rank, source in enumerate(sources)]
    return run.commit_checkpoint(slot, parts, world_size=len(sources), **facts)


def commit(location: str | os.PathLike[str], *sources: Path, **facts: Any) -> Manifest:
    """Commit one checkpoint to the run at a location and leave it closed."""
    with open_run(open_store(location)) as run:
        return commit_to(run, *sources, **facts)

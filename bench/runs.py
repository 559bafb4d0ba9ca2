"""A run of Holdfast's own, made for one measurement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.checkpoint.commit import deliver
from holdfast.control.record.open_run import OpenRun, open_run
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.storage.local.store import LocalStore


@contextmanager
def scratch_run(folder: Path) -> Iterator[OpenRun]:
    """Open a new run on local disk; its folder goes with the one it is in."""
    with open_run(LocalStore(folder)) as run:
        yield run


def save(run: OpenRun, source: Path) -> Manifest:
    """Commit the files in `source` as one checkpoint, as a run with one rank does."""
    slot = run.begin_checkpoint(attempt=1)
    part = deliver(run.store, slot, 0, source)
    return run.commit_checkpoint(slot, [part])

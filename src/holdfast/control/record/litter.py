"""Finds and removes litter: what crashes leave behind in a run.

Unknown files are not litter. Only what is certainly ours and certainly of no use is: puts that
never finished, staging folders, folders of numbers that were given out and never committed or have
been retired, commits by a driver that had been replaced, and journal segments that no longer count.
A user's own files are never touched, and a checkpoint that the record does not have (such as one
put back from a backup) is left, with a warning.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from holdfast.checkpoint.commit import STAGING, remove_directory
from holdfast.checkpoint.manifests import (
    PRIVATE,
    has_manifest,
    manifest_key,
    read_manifests,
)
from holdfast.control.record.checkpoints import Checkpoints
from holdfast.control.record.open_run import OpenRun
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.checkpoint.record import RunRecord
from holdfast.errors import ObjectMissing
from holdfast.journal.replay import READS_MAX
from holdfast.journal.segments import find_chain
from holdfast.storage.base import Entry, Store

log = logging.getLogger(__name__)

_NUMBERED = re.compile(r"checkpoint_(\d{6,})")  # names that only runs give out
_STALE_SEGMENT = "a journal segment that no longer counts"


@dataclass(frozen=True, slots=True)
class Litter:
    """A file or folder of no use; `number` is that of its checkpoint, if it belongs to one."""

    key: str
    size: int
    why: str
    number: int | None = None


def find_litter(
    store: Store,
    run_id: str,
    record: RunRecord,
    *,
    in_flight: Collection[int] = (),
    is_damaged: bool = False,
) -> list[Litter]:
    """Return all litter of a run, except for checkpoints that are being written: `in_flight`.

    If the journal `is_damaged`, commits that it does not have are not litter: it may have lost
    them.
    """
    litter = [
        Litter(entry.key, entry.size, "a write that never finished")
        for entry in store.litter(PRIVATE if store.local else "")
        if not entry.key.startswith(f"{STAGING}/")
    ]
    busy = {f"{number:06d}" for number in in_flight}
    for folder in store.folders(STAGING):
        if folder.split("-")[0] not in busy:
            key = f"{STAGING}/{folder}"
            litter.append(Litter(key, _size_below(store, key), "staged and never committed"))
    litter += _abandoned_folders(store, record, in_flight)
    if not is_damaged:
        litter += _stale_commits(store, run_id, record)
    litter += [
        Litter(key, entry.size, _STALE_SEGMENT)
        for key in _stale_segments(store, run_id)
        if (entry := store.stat(key)) is not None
    ]
    return litter


def _stale_segments(store: Store, run_id: str) -> list[str]:
    """Return the segments that no longer count; the journal may be compacted meanwhile."""
    for _ in range(READS_MAX - 1):
        try:
            return find_chain(store, run_id).stale
        except ObjectMissing:
            continue  # a segment was removed between the listing and the read
    return find_chain(store, run_id).stale


def _abandoned_folders(
    store: Store, record: RunRecord, in_flight: Collection[int]
) -> Iterator[Litter]:
    in_use = _folders_in_use(record)
    for numbers, why in ((record.begun, "never committed"), (record.retired, "retired")):
        for number, directory in numbers.items():
            if number in in_flight or directory in in_use:
                continue
            is_committed = has_manifest(store, directory)
            if is_committed and numbers is record.begun:
                continue  # cut off between its manifest and the journal: it counts
            size = _size_below(store, directory)
            if size or is_committed or _exists(store, directory):
                yield Litter(directory, size, why, number)
    # A frozen worker of a driver that was replaced may still write after its folder was swept.
    for folder, number in _unknown_folders(store, record):
        if number in record.burnt and number not in in_flight:
            yield Litter(folder, _size_below(store, folder), "never committed", number)


def _folders_in_use(record: RunRecord) -> set[str]:
    return {checkpoint.directory for checkpoint in record.kept.values()}


def _unknown_folders(store: Store, record: RunRecord) -> Iterator[tuple[str, int]]:
    """Yield folders that are named like a checkpoint and are none, with the number in the name."""
    recorded = {*_folders_in_use(record), *record.begun.values(), *record.retired.values()}
    for folder in store.folders():
        name = _NUMBERED.fullmatch(folder)
        if name is None or folder in recorded or has_manifest(store, folder):
            continue
        is_there = _size_below(store, folder) or _exists(store, folder)
        if is_there and int(name[1]) < record.next_number:  # some stores list what is gone
            yield folder, int(name[1])


def _stale_commits(store: Store, run_id: str, record: RunRecord) -> Iterator[Litter]:
    for directory, number in _unknown_commits(store, run_id, record):
        if number in record.burnt or number in record.begun:
            why = "committed by a driver that was replaced"
            yield Litter(directory, _size_below(store, directory), why, number)


def _unknown_commits(store: Store, run_id: str, record: RunRecord) -> Iterator[tuple[str, int]]:
    """Yield the folders of committed checkpoints that do not count, with their numbers."""
    recorded = {*_folders_in_use(record), *record.retired.values()}
    for directory, manifest in read_manifests(store, recorded):
        if not isinstance(manifest, Manifest) or manifest.run_id != run_id:
            continue
        if not record.is_current(manifest):
            yield directory, manifest.number


def find_strays(store: Store, run_id: str, record: RunRecord) -> list[str]:
    """Return folders that look like checkpoints, are not in the record, and are not litter either.

    One may have been put back from a backup after it was retired, or its record is lost.
    """
    unknown = [*_unknown_folders(store, record), *_unknown_commits(store, run_id, record)]
    return sorted(
        folder for folder, number in unknown if number not in record.burnt | record.begun.keys()
    )


def warn_of_strays(store: Store, run_id: str, record: RunRecord) -> None:
    """Log a warning for every stray: it is neither used nor removed."""
    for folder in find_strays(store, run_id, record):
        log.warning(
            "%s/%s is left as it is: it is named like a checkpoint, but the run has no record of it"
            " (use it by its path, or delete it)",
            store.url, folder,
        )  # fmt: skip


def sweep(run: OpenRun, *, in_flight: Collection[int] = ()) -> list[Litter]:
    """Remove all litter of a run that this process holds, and return it."""
    litter = find_litter(
        run.store, run.run_id, run.record, in_flight=in_flight, is_damaged=run.has_lost_records
    )
    run.lease.check()  # a driver that was replaced must not take its successor's work for litter
    remove_litter(run, litter)
    warn_of_strays(run.store, run.run_id, run.record)
    swept = [n for n in (*run.record.begun, *run.record.retired) if n not in in_flight]
    if swept:
        run.note("litter_swept", {"numbers": sorted(set(swept))})
    return litter


def remove_litter(run: Checkpoints, litter: Iterable[Litter]) -> None:
    """Remove what `find_litter` returned."""
    for item in litter:
        if item.number is not None:
            run.store.delete(manifest_key(item.key))
            remove_directory(run.store, item.key)
        elif item.key.startswith(f"{STAGING}/") and run.store.local:
            run.store.local.discard_tree(item.key)
        elif item.why == _STALE_SEGMENT:
            run.store.delete(item.key)
        else:
            run.store.delete_litter(Entry(item.key, item.size, 0.0))


def _exists(store: Store, directory: str) -> bool:
    """Whether a folder is there, even an empty one, which only disks can have."""
    return store.local is not None and store.local.has(directory)


def _size_below(store: Store, prefix: str) -> int:
    return sum(entry.size for entry in store.entries(prefix))

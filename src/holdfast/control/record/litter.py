"""Litter: what crashes leave behind, found by knowing what belongs, and removed by the holder.

Nothing is litter because we do not recognise it. Only what is certainly ours and certainly of no
use is: puts that never finished, staging folders, folders of numbers that were given out and
never committed or have been retired, commits by a driver that had been replaced, and journal
segments that no longer count. A user's own files are never touched, and a checkpoint that the
record does not know (one put back from a backup) is left and named.
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


@dataclass(frozen=True, slots=True)
class Litter:
    """One thing of no use. `number` is that of the checkpoint it would have been, if any."""

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
    """Return all litter of a run, leaving out the numbers that are being written right now.

    Where the journal `is_damaged`, a commit that it does not know may be one that it has forgotten,
    and is none.
    """
    found = [
        Litter(entry.key, entry.size, "a write that never finished")
        for entry in store.litter(PRIVATE if store.local else "")
        if not entry.key.startswith(f"{STAGING}/")
    ]
    busy = {f"{number:06d}" for number in in_flight}
    for folder in store.folders(STAGING):
        if folder.split("-")[0] not in busy:
            key = f"{STAGING}/{folder}"
            found.append(Litter(key, _size_below(store, key), "staged and never committed"))
    found += _abandoned_folders(store, record, in_flight)
    if not is_damaged:
        found += _stale_commits(store, run_id, record)
    found += [
        Litter(key, entry.size, "a journal segment that no longer counts")
        for key in _stale_segments(store, run_id)
        if (entry := store.stat(key)) is not None
    ]
    return found


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
    in_use = {kept.directory for kept in record.kept.values()}
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
    # A worker that was frozen, of a driver that was replaced, may write after all that was swept.
    for folder, number in _unknown_folders(store, record):
        if number in record.burnt and number not in in_flight:
            yield Litter(folder, _size_below(store, folder), "never committed", number)


def _unknown_folders(store: Store, record: RunRecord) -> Iterator[tuple[str, int]]:
    """Yield folders that have the name of a checkpoint and are none, with the number in it."""
    in_use = {kept.directory for kept in record.kept.values()}
    listed = in_use | set(record.begun.values()) | set(record.retired.values())
    for folder in store.folders():
        named = _NUMBERED.fullmatch(folder)
        if named is None or folder in listed or has_manifest(store, folder):
            continue
        is_there = _size_below(store, folder) or _exists(store, folder)
        if is_there and int(named[1]) < record.next_number:  # some stores list what is gone
            yield folder, int(named[1])


def _stale_commits(store: Store, run_id: str, record: RunRecord) -> Iterator[Litter]:
    for directory, number in _unknown_commits(store, run_id, record):
        if number in record.burnt or number in record.begun:
            why = "committed by a driver that was replaced"
            yield Litter(directory, _size_below(store, directory), why, number)


def _unknown_commits(store: Store, run_id: str, record: RunRecord) -> Iterator[tuple[str, int]]:
    """Yield checkpoints of the run that do not count, with their numbers."""
    known = {kept.directory for kept in record.kept.values()} | set(record.retired.values())
    for directory, manifest in read_manifests(store, known):
        is_of_run = isinstance(manifest, Manifest) and manifest.run_id == run_id
        if isinstance(manifest, Manifest) and is_of_run and not record.is_current(manifest):
            yield directory, manifest.number


def find_strays(store: Store, run_id: str, record: RunRecord) -> list[str]:
    """Return the folders of checkpoints that nothing is known of: no litter, and not used either.

    Somebody may have put one back from a backup after it was retired, or the record of it is lost.
    """
    found = [*_unknown_folders(store, record), *_unknown_commits(store, run_id, record)]
    return sorted(
        folder for folder, number in found if number not in record.burnt | record.begun.keys()
    )


def say_strays(store: Store, run_id: str, record: RunRecord) -> None:
    """Tell of every checkpoint that is neither used nor removed."""
    for folder in find_strays(store, run_id, record):
        log.warning(
            "%s/%s is left as it is: it has the name of a checkpoint, and none is known there"
            " (use it by its path, or delete it)",
            store.url, folder,
        )  # fmt: skip


def sweep(run: OpenRun, *, in_flight: Collection[int] = ()) -> list[Litter]:
    """Remove all litter of a run that this process holds, and return what it was."""
    found = find_litter(
        run.store, run.run_id, run.record, in_flight=in_flight, is_damaged=run.has_lost_records
    )
    run.lease.check()  # whoever was replaced must not take its successor's work for litter
    remove_litter(run, found)
    say_strays(run.store, run.run_id, run.record)
    swept = [n for n in (*run.record.begun, *run.record.retired) if n not in in_flight]
    if swept:
        run.note("litter_swept", {"numbers": sorted(set(swept))})
    return found


def remove_litter(run: Checkpoints, found: Iterable[Litter]) -> None:
    """Remove what was found to be litter."""
    for litter in found:
        if litter.number is not None:
            run.store.delete(manifest_key(litter.key))
            remove_directory(run.store, litter.key)
        elif litter.key.startswith(f"{STAGING}/") and run.store.local:
            run.store.local.discard_tree(litter.key)
        elif litter.why.startswith("a journal segment"):
            run.store.delete(litter.key)
        else:
            run.store.delete_litter(Entry(litter.key, litter.size, 0.0))


def _exists(store: Store, directory: str) -> bool:
    """Whether a folder is there even if it is empty, which only disks know."""
    return store.local is not None and store.local.has(directory)


def _size_below(store: Store, prefix: str) -> int:
    return sum(entry.size for entry in store.entries(prefix))

"""How a checkpoint comes to exist: ranks deliver, the parts become one folder, the manifest is last.

Before the manifest is put there is only litter, which a sweep removes. On a local disk ranks
deliver to a hidden staging folder that is renamed when whole; on an object store they deliver to
the final keys, which belong to nobody until the manifest names them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.checkpoint.manifests import PRIVATE, has_manifest, put_manifest
from holdfast.core.manifest import Contest, FileEntry, Manifest, Merged, Part, merge
from holdfast.errors import Conflict, Damaged, StoreError
from holdfast.storage.base import Store
from holdfast.storage.local import LocalStore
from holdfast.storage.transfer import Watch, damage_of, upload_files, upload_tree

log = logging.getLogger(__name__)

STAGING = f"{PRIVATE}/staging"


@dataclass(frozen=True, slots=True)
class Slot:
    """A checkpoint number that has been given out, and where its files go.

    The number is never given again, whatever becomes of it, so the leftovers of a dead attempt
    cannot mix with a later one.
    """

    number: int
    directory: str
    epoch: int
    attempt: int

    @property
    def staging(self) -> str:
        """Where ranks deliver on a local disk."""
        return f"{STAGING}/{self.number:06d}-{self.epoch:06d}"


def default_directory(number: int) -> str:
    """Return the folder of a checkpoint whose user did not name one."""
    return f"checkpoint_{number:06d}"


def deliver(
    store: Store,
    slot: Slot,
    rank: int,
    source: str | os.PathLike[str],
    watch: Watch | None = None,
) -> Part:
    """Transfer one rank's files and return what they are; durable on return, not yet committed."""
    prefix = _part_prefix(store, slot, rank)
    try:
        files, folders = upload_tree(store, source, prefix, watch)
    except BaseException:
        if store.local is not None:
            _discard(store, prefix)
        raise
    return Part(rank, files, folders)


def settle(
    store: Store, slot: Slot, parts: Iterable[Part], sources: Mapping[int, str]
) -> tuple[Contest, ...]:
    """Make the lowest rank's file the one at rest wherever ranks delivered different ones.

    Only needed where ranks write to the same keys, which is on object stores: there the last to
    write has overwritten the others. Call it once every rank has delivered, so that nobody writes
    any more; `sources` are the folders the ranks delivered from.
    """
    merged = merge(parts)
    if store.local is None:
        for contest in merged.contests:
            upload_files(store, sources[contest.winner], slot.directory, [contest.path])
    return merged.contests


def publish(store: Store, slot: Slot, parts: Iterable[Part]) -> Merged:
    """Make the parts one folder under its final name; durable on return, not yet committed."""
    merged = merge(parts)
    if has_manifest(store, slot.directory):
        raise Conflict(
            f"{store.url}/{slot.directory} is a checkpoint already",
            key=slot.directory,
            hint="give each checkpoint a name of its own, or none and let it be numbered",
        )
    if store.local is not None:
        _publish_folder(store.local, slot, merged)
    else:
        _publish_objects(store, slot, merged)
    for contest in merged.contests:
        losers = ", ".join(map(str, contest.losers))
        log.warning(
            "%s: rank %d and rank %s saved different contents as %r; rank %d's is kept",
            slot.directory, contest.winner, losers, contest.path, contest.winner,
        )  # fmt: skip
    return merged


def commit(store: Store, slot: Slot, manifest: Manifest) -> None:
    """Put the manifest: the checkpoint exists when this has returned. Then tidy up behind it."""
    put_manifest(store, manifest)
    if store.local is not None:
        _discard(store, slot.staging)


def discard(store: Store, slot: Slot) -> None:
    """Remove what was delivered for a slot that will not be committed."""
    if store.local is not None:
        _discard(store, slot.staging)
    elif not has_manifest(store, slot.directory):
        _discard(store, slot.directory)


def _part_prefix(store: Store, slot: Slot, rank: int) -> str:
    return slot.directory if store.local is None else f"{slot.staging}/rank-{rank}"


def _publish_folder(store: LocalStore, slot: Slot, merged: Merged) -> None:
    ranks = sorted({rank for rank in merged.owners.values()})
    base = f"{slot.staging}/rank-{ranks[0]}" if ranks else f"{slot.staging}/none"
    touched = {base}
    for folder in merged.folders:
        store.make_folder(store.path(f"{base}/{folder}"))
    if not ranks:
        store.make_folder(store.path(base))
    for path, rank in merged.owners.items():
        if rank == ranks[0]:
            continue
        target = f"{base}/{path}"
        folder = os.path.dirname(target)
        store.make_folder(store.path(folder))
        store.move_file(f"{slot.staging}/rank-{rank}/{path}", target)
        touched.add(folder)
    if len(ranks) > 1:
        for folder in sorted(touched):
            store.sync_folder(folder)
    if store.disk.stat(store.path(slot.directory)) is not None:
        # A name of the user's own, used before by an attempt that never committed it.
        store.delete_tree(slot.directory)
    store.move_tree(base, slot.directory)


def _publish_objects(store: Store, slot: Slot, merged: Merged) -> None:
    if slot.directory != default_directory(slot.number):
        keep = {f"{slot.directory}/{entry.path}" for entry in merged.files}
        for entry in list(store.entries(slot.directory)):
            if entry.key not in keep:
                store.delete(entry.key)
    contested = {contest.path for contest in merged.contests}
    doubtful: list[FileEntry] = [entry for entry in merged.files if entry.path in contested]
    if problems := damage_of(store, slot.directory, doubtful):
        raise Damaged(f"{slot.directory} was not settled: {'; '.join(problems)}")


def _discard(store: Store, prefix: str) -> None:
    try:
        if store.local is not None:
            store.local.discard_tree(prefix)
        else:
            store.delete_tree(prefix)
    except StoreError as error:
        log.warning("leaving litter for a later sweep: %s", error)

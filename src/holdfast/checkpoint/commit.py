"""How a checkpoint comes to exist: ranks deliver, parts become one folder, the manifest is last.

Before the manifest is put there is only litter, which a sweep removes. On a local disk ranks
deliver to a hidden staging folder that is renamed when whole; on an object store they deliver to
the final keys, which belong to nobody until the manifest names them.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.checkpoint.manifests import PRIVATE, has_manifest, put_manifest
from holdfast.checkpoint.metadata import metadata_key
from holdfast.core.checkpoint.manifest import Contest, FileEntry, Manifest, Merged, Part, merge
from holdfast.errors import Conflict, Damaged, StoreError
from holdfast.storage.base import Store
from holdfast.storage.local.store import LocalStore
from holdfast.storage.parallel import Watch
from holdfast.storage.transfer import take_stock, upload_files, upload_tree
from holdfast.storage.verify import damage_of

log = logging.getLogger(__name__)

STAGING = f"{PRIVATE}/staging"
Stock: TypeAlias = tuple[tuple[FileEntry, ...], tuple[str, ...]]
SPOOLED = "spool-"  # how the names of folders begin that wait there to be delivered


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

    def staging(self, rank: int) -> str:
        """Return where a rank delivers on a local disk."""
        return f"{STAGING}/{self._staging_name}{rank}"

    def has_staged(self, folder: str) -> bool:
        """Whether a folder of the staging area belongs to this slot."""
        return folder.startswith(self._staging_name)

    @property
    def _staging_name(self) -> str:
        return f"{self.number:06d}-{self.epoch:06d}-"


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
    """Transfer one rank's files and return what they are; not committed yet.

    On a local disk the bytes are durable on return; their names follow when the folder they are
    staged in is published.
    """
    prefix = slot.directory if store.local is None else slot.staging(rank)
    if store.local is not None:
        store.local.keep_folder(STAGING)
        _discard(store, prefix)  # an earlier try of this very delivery
    try:
        files, folders = upload_tree(store, source, prefix, watch, staged=bool(store.local))
    except BaseException:
        if store.local is not None:
            _discard(store, prefix)
        raise
    return Part(rank, files, folders)


def prepare_taken(store: Store, folder: str) -> Stock | None:
    """Do all for `deliver_taken` that needs no slot; None if nothing can be done without one."""
    key = _staged_key(store, folder)
    return None if key is None else take_stock(store, key, staged=True)


def deliver_taken(
    store: Store, slot: Slot, rank: int, folder: str, prepared: Stock | None = None
) -> Part:
    """Deliver a folder that is ours already; on the store's own disk no byte is copied.

    What is durable on return is what is after `deliver`. What `prepare_taken` has returned of the
    folder need not be done again.
    """
    local, key = store.local, _staged_key(store, folder)
    if local is None or key is None:
        return deliver(store, slot, rank, folder)
    files, folders = prepared or take_stock(store, key, staged=True)
    _discard(store, slot.staging(rank))
    local.move_tree(key, slot.staging(rank), durably=False)
    return Part(rank, files, folders)


def _staged_key(store: Store, folder: str) -> str | None:
    """Return the key of a folder in the staging area, None if it is elsewhere."""
    local = store.local
    if local is None or not folder.startswith(local.path(STAGING) + os.sep):
        return None
    return f"{STAGING}/{os.path.relpath(folder, local.path(STAGING))}"


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
    parts = list(parts)
    merged = merge(parts)
    if has_manifest(store, slot.directory):
        raise Conflict(
            f"{store.url}/{slot.directory} is a checkpoint already",
            key=slot.directory,
            hint="give each checkpoint a name of its own, or none and let it be numbered",
        )
    if store.local is not None:
        _publish_folder(store.local, slot, merged, min((part.rank for part in parts), default=0))
    else:
        _publish_objects(store, slot, merged)
    _say_contests(slot, merged)
    return merged


def _say_contests(slot: Slot, merged: Merged) -> None:
    for contest in merged.contests:
        losers = ", ".join(map(str, contest.losers))
        log.warning(
            "%s: rank %d and rank %s saved different contents as %r; rank %d's is kept",
            slot.directory, contest.winner, losers, contest.path, contest.winner,
        )  # fmt: skip


def publish_beside(
    store: Store, slot: Slot, parts: Iterable[Part], placed_by: int
) -> tuple[tuple[FileEntry, ...], tuple[str, ...]]:
    """Add parts to the slot's folder, where the user's own code has put others; durable on return.

    What is there counts as of the rank `placed_by`. Returns all that is there then.
    """
    delivered = {part.rank: part for part in parts}
    files, folders = take_stock(store, slot.directory)
    merged = merge([Part(placed_by, files, folders), *delivered.values()])
    if store.local is None:
        _must_hold(store, slot, {entry.path for entry in files}, delivered.values())
    else:
        _say_contests(slot, merged)
        ours = {path: rank for path, rank in merged.owners.items() if rank in delivered}
        for path, rank in ours.items():
            store.local.move_file(f"{slot.staging(rank)}/{path}", f"{slot.directory}/{path}")
        changed = {os.path.dirname(path) for path in ours} | set(merged.folders)
        inner = {parent for folder in changed for parent in _with_parents(folder)}
        store.local.sync_folders(
            [*(f"{slot.directory}/{folder}" for folder in sorted(inner)), slot.directory]
        )
        files, folders = merged.files, merged.folders
    return files, folders


def _must_hold(store: Store, slot: Slot, there: Collection[str], parts: Iterable[Part]) -> None:
    """Raise if a folder of an object store lacks what ranks have delivered to it."""
    for part in parts:
        for entry in part.files:
            if entry.path not in there:
                key = f"{slot.directory}/{entry.path}"
                raise Damaged(f"{store.url}/{key} is gone, and rank {part.rank} delivered it")


def commit(store: Store, slot: Slot, manifest: Manifest) -> None:
    """Put the manifest: the checkpoint exists when this has returned. Then tidy up behind it."""
    put_manifest(store, manifest)
    if manifest.world_size > 1:  # who was alone has nothing left there: it was moved
        _discard_staged(store, slot)


def discard(store: Store, slot: Slot) -> None:
    """Remove what was delivered for a slot that will not be committed."""
    _discard_staged(store, slot)
    if store.local is None and not has_manifest(store, slot.directory):
        _discard(store, slot.directory)


def remove_directory(store: Store, directory: str) -> None:
    """Remove a checkpoint whose manifest is gone, metadata too; already gone is not an error.

    On a local disk it leaves its place in one step, so that nobody ever sees half of it, and what
    a crash leaves of it lies where a sweep looks. A link in its place is removed, and nothing that
    lies behind one is: that is outside of the run.
    """
    store.delete(metadata_key(directory))
    if store.local is None:
        store.delete_tree(directory)
        return
    if (link := store.local.link_above(directory)) is not None:
        log.warning("%s/%s is left: it lies behind the link %s", store.url, directory, link)
        return
    doomed = f"{STAGING}/gone-{secrets.token_hex(8)}"
    if store.local.has(directory):
        store.local.move_tree(directory, doomed)
        _discard(store, doomed)


def _publish_folder(store: LocalStore, slot: Slot, merged: Merged, lowest: int) -> None:
    """Move all files to the folder of the lowest rank, which has nothing that lost a contest."""
    base = slot.staging(lowest)
    for path, rank in merged.owners.items():
        if rank != lowest:
            store.move_file(f"{slot.staging(rank)}/{path}", f"{base}/{path}")
    folders = {os.path.dirname(path) for path in merged.owners} | set(merged.folders)
    inner = {parent for folder in folders for parent in _with_parents(folder)}
    store.sync_folders([*(f"{base}/{folder}" for folder in sorted(inner)), base])
    store.move_tree(base, slot.directory)


def _with_parents(folder: str) -> list[str]:
    parts = folder.split("/") if folder else []
    return ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


def _publish_objects(store: Store, slot: Slot, merged: Merged) -> None:
    wanted = {f"{slot.directory}/{entry.path}": entry for entry in merged.files}
    found = {entry.key: entry.size for entry in store.entries(slot.directory)}
    for key in found.keys() - wanted.keys():
        store.delete(key)  # of a rank that lost a contest
    for key, entry in wanted.items():
        if found.get(key) != entry.size:
            rank = merged.owners[entry.path]
            raise Damaged(f"{store.url}/{key} is not what rank {rank} says it delivered")
    contested = {contest.path for contest in merged.contests}
    doubtful = [entry for entry in merged.files if entry.path in contested]
    if problems := damage_of(store, slot.directory, doubtful):
        raise Damaged(f"{slot.directory} was not settled: {'; '.join(problems)}")


def _discard_staged(store: Store, slot: Slot) -> None:
    if store.local is not None:
        for folder in store.folders(STAGING):
            if slot.has_staged(folder):
                _discard(store, f"{STAGING}/{folder}")


def _discard(store: Store, prefix: str) -> None:
    try:
        if store.local is not None:
            store.local.discard_tree(prefix)
        else:
            store.delete_tree(prefix)
    except StoreError as error:
        log.warning("leaving litter for a later sweep: %s", error)

"""Commits checkpoints: ranks deliver parts, which become one folder; the manifest is put last.

Until the manifest is put, all files are litter, which a sweep removes. On a local disk, ranks
deliver to a hidden staging folder that is renamed when complete; on an object store, they deliver
to the final keys, which belong to no checkpoint until the manifest names them.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.checkpoint.manifests import PRIVATE, has_manifest, put_manifest
from holdfast.checkpoint.metadata import metadata_key
from holdfast.core.checkpoint.manifest import FileEntry, Manifest, Merged, Part, merge
from holdfast.errors import Conflict, Damaged, StoreError
from holdfast.storage.base import Store
from holdfast.storage.local.store import LocalStore
from holdfast.storage.parallel import Watch
from holdfast.storage.transfer import take_stock, upload_tree
from holdfast.storage.verify import damage_of

log = logging.getLogger(__name__)

STAGING = f"{PRIVATE}/staging"
Stock: TypeAlias = tuple[tuple[FileEntry, ...], tuple[str, ...]]
SPOOLED = "spool-"  # prefix of folders that wait in the staging area to be delivered


@dataclass(frozen=True, slots=True)
class Slot:
    """A reserved checkpoint number, and where its files go.

    A number is never used twice, even if its checkpoint fails, so the leftovers of a dead attempt
    cannot mix with a later one.
    """

    number: int
    directory: str
    epoch: int
    attempt: int

    def staging(self, rank: int) -> str:
        """Return the folder a rank delivers to on a local disk."""
        return f"{STAGING}/{self._staging_name}{rank}"

    def has_staged(self, folder: str) -> bool:
        """Whether a folder of the staging area belongs to this slot."""
        return folder.startswith(self._staging_name)

    @property
    def _staging_name(self) -> str:
        return f"{self.number:06d}-{self.epoch:06d}-"


def default_directory(number: int) -> str:
    """Return the folder of a checkpoint that the user did not name."""
    return f"checkpoint_{number:06d}"


def deliver(
    store: Store,
    slot: Slot,
    rank: int,
    source: str | os.PathLike[str],
    watch: Watch | None = None,
) -> Part:
    """Transfer one rank's files and return them; they are not committed yet.

    On a local disk, the bytes are durable on return, and the names once the folder is published.
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
    """Do the part of `deliver_taken` that needs no slot; None if there is none."""
    key = _staged_key(store, folder)
    return None if key is None else take_stock(store, key, staged=True)


def deliver_taken(
    store: Store, slot: Slot, rank: int, folder: str, prepared: Stock | None = None
) -> Part:
    """Deliver a folder that is ours already; on the store's own disk, it is moved, not copied.

    As durable as after `deliver`. `prepared` is the result of `prepare_taken`.
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


def publish(store: Store, slot: Slot, parts: Iterable[Part]) -> Merged:
    """Combine the parts into one folder under its final name; durable, but not yet committed."""
    parts = list(parts)
    merged = merge(parts)
    if has_manifest(store, slot.directory):
        raise Conflict(
            f"{store.url}/{slot.directory} is a checkpoint already",
            key=slot.directory,
            hint="give each checkpoint its own name, or none and let it be numbered",
        )
    if store.local is not None:
        _publish_folder(store.local, slot, merged, min((part.rank for part in parts), default=0))
    else:
        _publish_objects(store, slot, merged)
    _log_contests(slot, merged)
    return merged


def _log_contests(slot: Slot, merged: Merged) -> None:
    for contest in merged.contests:
        losers = ", ".join(map(str, contest.losers))
        log.warning(
            "%s: rank %d and rank %s saved different contents as %r; rank %d's is kept",
            slot.directory, contest.winner, losers, contest.path, contest.winner,
        )  # fmt: skip


def publish_beside(
    store: Store, slot: Slot, parts: Iterable[Part], placed_by: int
) -> tuple[tuple[FileEntry, ...], tuple[str, ...]]:
    """Add parts to the slot's folder, where user code has placed files itself; durable on return.

    Those files count as delivered by the rank `placed_by`. Returns the contents of the folder.
    """
    delivered = {part.rank: part for part in parts}
    files, folders = take_stock(store, slot.directory)
    merged = merge([Part(placed_by, files, folders), *delivered.values()])
    if store.local is None:
        _must_hold(store, slot, {entry.path for entry in files}, delivered.values())
    else:
        _log_contests(slot, merged)
        moves = {path: rank for path, rank in merged.owners.items() if rank in delivered}
        for path, rank in moves.items():
            store.local.move_file(f"{slot.staging(rank)}/{path}", f"{slot.directory}/{path}")
        changed = {os.path.dirname(path) for path in moves} | set(merged.folders)
        inner = {parent for folder in changed for parent in _with_parents(folder)}
        store.local.sync_folders(
            [*(f"{slot.directory}/{folder}" for folder in sorted(inner)), slot.directory]
        )
        files, folders = merged.files, merged.folders
    return files, folders


def _must_hold(store: Store, slot: Slot, paths: Collection[str], parts: Iterable[Part]) -> None:
    """Raise if a folder of an object store lacks files that ranks have delivered."""
    for part in parts:
        for entry in part.files:
            if entry.path not in paths:
                key = f"{slot.directory}/{entry.path}"
                raise Damaged(f"{store.url}/{key} is gone, although rank {part.rank} delivered it")


def commit(store: Store, slot: Slot, manifest: Manifest) -> None:
    """Put the manifest: the checkpoint exists when this has returned. Then remove leftovers."""
    put_manifest(store, manifest)
    if manifest.world_size > 1:  # the folder of a single rank was moved
        _discard_staged(store, slot)


def discard(store: Store, slot: Slot) -> None:
    """Remove the files of a slot that will not be committed."""
    _discard_staged(store, slot)
    if store.local is None and not has_manifest(store, slot.directory):
        _discard(store, slot.directory)


def remove_directory(store: Store, directory: str) -> None:
    """Remove a checkpoint whose manifest is gone, with its metadata; it may be gone already.

    On a local disk, it is moved away first, so that no reader sees half of it, and a sweep finds
    what a crash leaves. A link in its place is removed, but nothing behind a link: that is outside
    the run.
    """
    store.delete(metadata_key(directory))
    if store.local is None:
        store.delete_tree(directory)
        return
    if (link := store.local.link_above(directory)) is not None:
        log.warning("%s/%s is not removed: it is behind the link %s", store.url, directory, link)
        return
    doomed = f"{STAGING}/gone-{secrets.token_hex(8)}"
    if store.local.has(directory):
        store.local.move_tree(directory, doomed)
        _discard(store, doomed)


def _publish_folder(store: LocalStore, slot: Slot, merged: Merged, lowest: int) -> None:
    """Move all files to the folder of the lowest rank, which wins all contests."""
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
    stored = {entry.key: entry.size for entry in store.entries(slot.directory)}
    for key in stored.keys() - wanted.keys():
        store.delete(key)  # of a rank that lost a contest
    for key, entry in wanted.items():
        if stored.get(key) != entry.size:
            rank = merged.owners[entry.path]
            raise Damaged(f"{store.url}/{key} is not what rank {rank} delivered")
    contested = {contest.path for contest in merged.contests}
    doubtful = [entry for entry in merged.files if entry.path in contested]
    if problems := damage_of(store, slot.directory, doubtful):
        raise Damaged(f"{slot.directory} has files of losing ranks: {'; '.join(problems)}")


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

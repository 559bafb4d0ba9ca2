"""Replays a log: what is durable, what is pending, and the disks a power cut could leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.testing.fates import KEPT, LOST, Fate, Pending, content_after, fates_of
from holdfast.testing.oplog import (
    ROOT,
    Image,
    Marked,
    Named,
    Operation,
    Synced,
    Truncated,
    Written,
    change_entries,
)


class Replay:
    """The durable part of a disk and the pending changes, after the operations taken so far."""

    def __init__(self, start: Image) -> None:
        self.files = dict(start.files)
        self.folders = dict(start.folders)
        self.next_inode = start.next_inode
        self.pending: dict[int, Pending] = {}
        self._latest: dict[tuple[int, str], int] = {}  # entry -> its latest pending change
        self._placed = {  # folder -> position of the change that named it, and where
            inode: (0, folder)
            for folder, entries in start.folders.items()
            for inode in entries.values()
            if inode in start.folders
        }

    def take(self, position: int, operation: Operation) -> None:
        match operation:
            case Named():
                self._take_name(position, operation)
            case Written() | Truncated():
                self.pending[position] = Pending(position, operation, fates_of(operation))
            case Synced(inode, _, is_folder=False):
                for item in self._of_file(inode):
                    self._keep(item)
            case Synced(inode):
                for item in self._of_folder(inode):
                    # Certain from now on, except in a folder that is lost itself.
                    self.pending[item.position] = replace(item, fates=(KEPT,))
                self._keep_certain()
            case Marked():
                pass

    def _take_name(self, position: int, change: Named) -> None:
        if change.born is not None:
            self.next_inode = change.born + 1
            if change.verb == "mkdir":
                self.folders[change.born] = {}
            else:
                self.files[change.born] = b""
        entries = [(folder, name) for folder, name, _ in change.changes]
        needs = {self._latest[entry] for entry in entries if entry in self._latest}
        self._latest.update(dict.fromkeys(entries, position))
        homes = self._homes(entries[-1][0]) if change.verb == "rename" else []
        for folder, _, inode in change.changes:
            if inode in self.folders:
                self._placed[inode] = position, folder
        self.pending[position] = Pending(
            position, change, fates_of(change), tuple(sorted(needs)), tuple(homes)
        )

    def _homes(self, folder: int) -> list[int]:
        """Return the pending changes that give names to `folder` and the folders above it."""
        homes = []
        while folder in self._placed:
            position, folder = self._placed[folder]
            if position in self.pending:
                homes.append(position)
        return homes

    def _of_file(self, inode: int) -> list[Pending]:
        return [
            item
            for item in self.pending.values()
            if not isinstance(item.change, Named) and item.change.inode == inode
        ]

    def _of_folder(self, inode: int) -> list[Pending]:
        """Return the pending changes of a folder's entries, and those they came after, in order."""
        positions: set[int] = set()
        for position, item in reversed(self.pending.items()):
            if isinstance(item.change, Named) and (
                position in positions
                or any(folder == inode for folder, _, _ in item.change.changes)
            ):
                positions.add(position)
                positions.update(item.needs)
        return [item for position, item in self.pending.items() if position in positions]

    def _keep_certain(self) -> None:
        for item in tuple(self.pending.values()):
            waits_for = (*item.needs, *item.homes)
            if item.fates == (KEPT,) and self.pending.keys().isdisjoint(waits_for):
                self._keep(item)

    def _keep(self, item: Pending) -> None:
        del self.pending[item.position]
        if isinstance(item.change, Named):
            change_entries(self.folders, item.change.changes, owned=set())
            for folder, name, _ in item.change.changes:
                if self._latest.get((folder, name)) == item.position:
                    del self._latest[folder, name]
        else:
            inode = item.change.inode
            self.files[inode] = content_after(self.files[inode], [item.change], [KEPT])


class Moment:
    """All disks that a power cut at one moment can leave, built from what they share."""

    def __init__(self, replay: Replay) -> None:
        self.pending: Sequence[Pending] = tuple(replay.pending.values())
        self._replay = replay
        self._names = [place for place, item in enumerate(self.pending) if item.is_name]
        self._bytes: dict[int, list[int]] = {}  # inode -> places of its pending changes
        for place, item in enumerate(self.pending):
            if not isinstance(item.change, Named):
                self._bytes.setdefault(item.change.inode, []).append(place)
        self._touched = set(self._bytes) | {
            folder
            for item in self.pending
            if isinstance(item.change, Named)
            for folder, _, _ in item.change.changes
        }
        self._folders_by_fates: dict[tuple[Fate, ...], dict[int, dict[str, int]]] = {}
        self._files_by_fates: dict[tuple[int, tuple[Fate, ...]], bytes] = {}
        self._settled: dict[int, int] = {}  # hashes of folders that are the same in every state

    def state_of(self, fates: tuple[Fate, ...]) -> int:
        """Return a hash of all names and contents that these fates leave."""
        return self._hash_of(ROOT, self._folders_after(fates), fates)[0]

    def image_of(self, fates: tuple[Fate, ...]) -> Image:
        """Return the disk that these fates leave."""
        changed = {inode: self._file_after(inode, fates) for inode in self._bytes}
        return Image(
            {**self._replay.files, **changed}, self._folders_after(fates), self._replay.next_inode
        )

    def _folders_after(self, fates: tuple[Fate, ...]) -> dict[int, dict[str, int]]:
        key = tuple([fates[place] for place in self._names])
        folders = self._folders_by_fates.get(key)
        if folders is None:
            folders, owned = dict(self._replay.folders), set[int]()
            for place in self._names:
                change = self.pending[place].change
                if fates[place] != LOST and isinstance(change, Named):
                    change_entries(folders, change.changes, owned)
            self._folders_by_fates[key] = folders
        return folders

    def _file_after(self, inode: int, fates: tuple[Fate, ...]) -> bytes:
        places = self._bytes.get(inode)
        if places is None:
            return self._replay.files[inode]
        key = inode, tuple([fates[place] for place in places])
        content = self._files_by_fates.get(key)
        if content is None:
            changes = [self.pending[place].change for place in places]
            content = content_after(self._replay.files[inode], changes, key[1])
            self._files_by_fates[key] = content
        return content

    def _hash_of(
        self, inode: int, folders: dict[int, dict[str, int]], fates: tuple[Fate, ...]
    ) -> tuple[int, bool]:
        """Return the hash of a file or folder, and whether it is the same in every state."""
        if inode in self._settled:
            return self._settled[inode], True
        entries = folders.get(inode)
        settled = inode not in self._touched
        if entries is None:
            # A bytes object caches its hash, so only new contents are read.
            return hash(self._file_after(inode, fates)), settled
        below = []
        for name, child in entries.items():
            value, child_settled = self._hash_of(child, folders, fates)
            below.append((name, value))
            settled = settled and child_settled
        hashed = hash(("folder", frozenset(below)))
        if settled:
            self._settled[inode] = hashed
        return hashed, settled

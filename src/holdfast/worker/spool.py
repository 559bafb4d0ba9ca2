"""Folders that are ours until they are uploaded: what ASYNC reports hand over.

A folder that may go is moved, which costs nothing; one that must stay is copied, because its owner
may write over its files while we read them. On a local disk the spool is the run's own staging
area, so that the upload is a move as well; for far-away storage it is in this user's private folder
for temporary files. What a killed worker leaves is removed by the next driver or the next attempt.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat

from holdfast.checkpoint.commit import SPOOLED, STAGING
from holdfast.storage.base import Store
from holdfast.storage.digest import digest_bytes
from holdfast.storage.private_folders import private_folder


class Spool:
    """The folders that one worker has handed over."""

    def __init__(self, store: Store, run_id: str, attempt: int, rank: int) -> None:
        self._name = f"{SPOOLED}{attempt:06d}-{rank}"
        # The trials of a study are one run; their folders on storage tell them apart.
        self._whose = f"{run_id}-{digest_bytes(store.url.encode())[:16]}"
        self._local = store.local
        self._make_folder()
        if self._local is None:
            self._remove_older(attempt, rank)

    def new(self, index: int) -> str:
        """Return an empty folder that is ours."""
        while True:
            folder = self._free(index)
            try:
                os.mkdir(folder, mode=0o700)
            except FileNotFoundError:  # the one above goes with the last that is in it
                self._make_folder()
            else:
                return folder

    def take(self, source: str, index: int, *, moves: bool) -> str:
        """Make the files of `source` ours and return where they are now.

        A folder that may be moved is renamed to a name that is free: the training loop waits for
        this, and on some disks nothing costs as much as a new folder.
        """
        if moves and not _is_linked(source):
            if not os.path.isdir(self.folder):  # it goes with the last that is in it
                self._make_folder()
            target = self._free(index)
            with contextlib.suppress(OSError):  # it is on another disk, or a mount itself
                os.rename(source, target)
                return target
        target = self.new(index)
        shutil.copytree(source, target, dirs_exist_ok=True)
        if moves:
            shutil.rmtree(source, ignore_errors=True)
        return target

    def drop(self, folder: str) -> None:
        """Remove what is left of a folder that was taken."""
        shutil.rmtree(folder, ignore_errors=True)
        if self._local is None and os.path.dirname(folder) == self.folder:
            with contextlib.suppress(OSError):  # other ranks still use it
                os.rmdir(self.folder)

    def _free(self, index: int) -> str:
        """Return the name of a folder that is ours, with nothing there."""
        folder = os.path.join(self.folder, f"{self._name}-{index}")
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def _make_folder(self) -> None:
        if self._local is not None:
            self._local.keep_folder(STAGING)
            self.folder = self._local.path(STAGING)
        else:
            self.folder = private_folder("spool", self._whose)

    def _remove_older(self, attempt: int, rank: int) -> None:
        for name in os.listdir(self.folder):
            kind, before, whose, *_ = [*name.split("-"), "", ""]
            if f"{kind}-" == SPOOLED and before < f"{attempt:06d}" and whose == str(rank):
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)


def _is_linked(folder: str) -> bool:
    """Whether something in it is a link, or a file that has another name elsewhere.

    A link may mean something else where it is moved to; and by its other name a file can be written
    to after it was acknowledged.
    """
    if os.path.islink(folder):
        return True
    for parent, folders, files in os.walk(folder):
        if any(os.path.islink(os.path.join(parent, name)) for name in folders):
            return True
        for name in files:
            found = os.lstat(os.path.join(parent, name))
            if stat.S_ISLNK(found.st_mode) or found.st_nlink > 1:
                return True
    return False

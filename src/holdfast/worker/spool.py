"""The spool: folders with checkpoints that wait to be uploaded in the background.

A folder that may be deleted is moved, which costs nothing; one that must stay is copied, because
its owner may overwrite its files while we read them. On a local disk the spool is the run's own
staging area, so the upload is a move as well; for remote storage it is in this user's private
folder for temporary files. What a killed worker leaves is removed by the next driver or attempt.
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
    """The spooled folders of one worker."""

    def __init__(self, store: Store, run_id: str, attempt: int, rank: int) -> None:
        self._name = f"{SPOOLED}{attempt:06d}-{rank}"
        # The trials of a study have one run id; their folders on storage tell them apart.
        self._owner = f"{run_id}-{digest_bytes(store.url.encode())[:16]}"
        self._local = store.local
        self._make_folder()
        if self._local is None:
            self._remove_older(attempt, rank)

    def new(self, index: int) -> str:
        """Return a new empty folder in the spool."""
        while True:
            folder = self._free(index)
            try:
                os.mkdir(folder, mode=0o700)
            except FileNotFoundError:  # `drop` removes the spool's folder with the last in it
                self._make_folder()
            else:
                return folder

    def take(self, source: str, index: int, *, moves: bool) -> str:
        """Move or copy `source` into the spool, and return where it is now.

        A folder that may be moved is renamed, not moved into a new one: the training loop waits for
        this, and on some disks nothing costs as much as creating a folder.
        """
        if moves and not _is_linked(source):
            if not os.path.isdir(self.folder):  # `drop` removes it with the last in it
                self._make_folder()
            target = self._free(index)
            with contextlib.suppress(OSError):  # it is on another disk, or a mount point
                os.rename(source, target)
                return target
        target = self.new(index)
        shutil.copytree(source, target, dirs_exist_ok=True)
        if moves:
            shutil.rmtree(source, ignore_errors=True)
        return target

    def drop(self, folder: str) -> None:
        """Remove what is left of a spooled folder."""
        shutil.rmtree(folder, ignore_errors=True)
        if self._local is None and os.path.dirname(folder) == self.folder:
            with contextlib.suppress(OSError):  # other ranks still use it
                os.rmdir(self.folder)

    def _free(self, index: int) -> str:
        """Return a path in the spool at which there is nothing."""
        folder = os.path.join(self.folder, f"{self._name}-{index}")
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def _make_folder(self) -> None:
        if self._local is not None:
            self._local.keep_folder(STAGING)
            self.folder = self._local.path(STAGING)
        else:
            self.folder = private_folder("spool", self._owner)

    def _remove_older(self, attempt: int, rank: int) -> None:
        for name in os.listdir(self.folder):
            kind, spooled_by, of_rank, *_ = [*name.split("-"), "", ""]
            if f"{kind}-" == SPOOLED and spooled_by < f"{attempt:06d}" and of_rank == str(rank):
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)


def _is_linked(folder: str) -> bool:
    """Whether it contains a symbolic link, or a file that has another name elsewhere.

    A link may point elsewhere after a move; and a file could be changed by its other name after it
    was acknowledged.
    """
    if os.path.islink(folder):
        return True
    for parent, folders, files in os.walk(folder):
        if any(os.path.islink(os.path.join(parent, name)) for name in folders):
            return True
        for name in files:
            status = os.lstat(os.path.join(parent, name))
            if stat.S_ISLNK(status.st_mode) or status.st_nlink > 1:
                return True
    return False

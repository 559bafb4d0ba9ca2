"""Folders that are ours until they are uploaded: what ASYNC reports hand over.

A folder that may go is moved, which costs nothing; one that must stay is copied, because its owner
may write over its files while we read them. On a local disk the spool is the run's own staging
area, so that the upload is a move as well; for far-away storage it is in the folder for temporary
files. What a killed worker leaves is removed by the next driver or the next attempt.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile

from holdfast.checkpoint.commit import SPOOLED, STAGING
from holdfast.storage.base import Store
from holdfast.storage.digest import digest_bytes


class Spool:
    """The folders that one worker has handed over."""

    def __init__(self, store: Store, run_id: str, attempt: int, rank: int) -> None:
        self._name = f"{SPOOLED}{attempt:06d}-{rank}"
        if store.local is not None:
            store.local.keep_folder(STAGING)
            self.folder = store.local.path(STAGING)
        else:
            # The trials of a study are one run; their folders on storage tell them apart.
            whose = f"{run_id}-{digest_bytes(store.url.encode())[:16]}"
            self.folder = os.path.join(tempfile.gettempdir(), f"holdfast-{whose}")
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            self._remove_older(attempt, rank)

    def new(self, index: int) -> str:
        """Return an empty folder that is ours."""
        folder = os.path.join(self.folder, f"{self._name}-{index}")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder, mode=0o700)  # another rank may have removed the empty one above it
        return folder

    def take(self, source: str, index: int, *, moves: bool) -> str:
        """Make the files of `source` ours and return where they are now."""
        target = os.path.join(self.folder, f"{self._name}-{index}")
        shutil.rmtree(target, ignore_errors=True)
        os.makedirs(self.folder, mode=0o700, exist_ok=True)  # it went with the last that was in it
        if moves and not _has_links(source):
            with contextlib.suppress(OSError):  # it is on another disk, or a mount itself
                os.rename(source, target)
                return target
        shutil.copytree(source, target)
        if moves:
            shutil.rmtree(source, ignore_errors=True)
        return target

    def drop(self, folder: str) -> None:
        """Remove what is left of a folder that was taken."""
        shutil.rmtree(folder, ignore_errors=True)
        if os.path.dirname(folder) == self.folder and not self.folder.endswith("staging"):
            with contextlib.suppress(OSError):  # other ranks still use it
                os.rmdir(self.folder)

    def _remove_older(self, attempt: int, rank: int) -> None:
        for name in os.listdir(self.folder):
            kind, before, whose, *_ = [*name.split("-"), "", ""]
            if f"{kind}-" == SPOOLED and before < f"{attempt:06d}" and whose == str(rank):
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)


def _has_links(folder: str) -> bool:
    """Whether something in it is a link, which may mean something else where it is moved to."""
    if os.path.islink(folder):
        return True
    return any(
        os.path.islink(os.path.join(parent, name))
        for parent, folders, files in os.walk(folder)
        for name in (*folders, *files)
    )

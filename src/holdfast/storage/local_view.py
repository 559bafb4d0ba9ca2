"""Filesystems of users that show a folder of this machine under paths of their own."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LocalView:
    """A filesystem such as pyarrow's SubTreeFileSystem, and the folder that its paths begin at.

    Files are read and written past it, as those of the local disk they are. What users are shown
    are its paths, because they look for them with this filesystem.
    """

    filesystem: object
    base: str

    def path_of(self, location: str) -> str:
        """Return what the filesystem calls a path of this machine."""
        return os.path.relpath(location, self.base)

    def location_of(self, path: str) -> str:
        """Return the path of this machine that the filesystem calls `path`."""
        return os.path.join(self.base, path.lstrip("/"))

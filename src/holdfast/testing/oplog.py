"""What a simulated disk remembers: images of a file system, and the operations that changed it.

Files and folders are inodes, known by number; a name is an entry of a folder that points at one.
Nothing here changes after it was made, except the dictionaries of an `Image` under construction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

ROOT = 1  # the inode of "/"


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """All that is on a disk: contents of files, entries of folders. Shared, so never changed."""

    files: dict[int, bytes]
    folders: dict[int, dict[str, int]]
    next_inode: int

    @classmethod
    def empty(cls) -> Image:
        return cls({}, {ROOT: {}}, ROOT + 1)

    def walk(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield every path below the root with its contents; None stands for a folder."""
        todo = [("", ROOT)]
        while todo:
            path, inode = todo.pop()
            for name, child in self.folders[inode].items():
                if child in self.folders:
                    yield f"{path}/{name}", None
                    todo.append((f"{path}/{name}", child))
                else:
                    yield f"{path}/{name}", self.files[child]


@dataclass(frozen=True, slots=True)
class Named:
    """Entries of folders changed, all or none: create, link, rename, remove, mkdir, rmdir.

    `changes` holds (folder, name, inode), with None for an entry that went away. `born` is the
    inode that came into being with the name, if one did.
    """

    verb: str
    path: str
    changes: tuple[tuple[int, str, int | None], ...]
    born: int | None = None

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes were written at an offset."""

    inode: int
    path: str
    offset: int
    data: bytes

    def __str__(self) -> str:
        return f"write {len(self.data)} bytes at {self.offset} of {self.path}"


@dataclass(frozen=True, slots=True)
class Truncated:
    """A file was cut, or grown with zeros, to `size`."""

    inode: int
    path: str
    size: int

    def __str__(self) -> str:
        return f"truncate {self.path} to {self.size} bytes"


@dataclass(frozen=True, slots=True)
class Synced:
    """The bytes of a file were made durable."""

    inode: int
    path: str

    def __str__(self) -> str:
        return f"sync {self.path}"


@dataclass(frozen=True, slots=True)
class FolderSynced:
    """The names in a folder were made durable."""

    inode: int
    path: str

    def __str__(self) -> str:
        return f"sync_dir {self.path}"


@dataclass(frozen=True, slots=True)
class Marked:
    """A note of the test: what had been begun or promised by then."""

    label: str

    def __str__(self) -> str:
        return f"mark {self.label!r}"


Change: TypeAlias = Named | Written | Truncated
Operation: TypeAlias = Change | Synced | FolderSynced | Marked


def overwrite(content: bytearray, offset: int, data: bytes) -> None:
    """Write as a file system does: what lies between the end and `offset` reads as zeros."""
    if offset > len(content):
        resize(content, offset)
    content[offset : offset + len(data)] = data


def resize(content: bytearray, size: int) -> None:
    """Cut to `size`, or grow with zeros."""
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))

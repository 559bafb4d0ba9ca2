"""Images of a simulated file system, and the operations that change them.

Files and folders are inodes, identified by number; a name is an entry of a folder that points at an
inode. Nothing here changes after it was made, except the dictionaries of an `Image` under
construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

ROOT = 1  # the inode of "/"


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """The content of a disk: files, and entries of folders. Shared, so never changed."""

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


EntryChange: TypeAlias = tuple[int, str, int | None]  # folder, name, inode; None if removed


@dataclass(frozen=True, slots=True)
class Named:
    """Entries of folders changed, all or none: create, link, rename, remove, mkdir, rmdir.

    `born` is the inode that was created with the name, if one was.
    """

    verb: str
    path: str
    changes: tuple[EntryChange, ...]
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
    """The bytes of a file, or the names in a folder, were made durable."""

    inode: int
    path: str
    is_folder: bool = False

    def __str__(self) -> str:
        return f"{'sync_dir' if self.is_folder else 'sync'} {self.path}"


@dataclass(frozen=True, slots=True)
class Marked:
    """A note of the test: what was begun or promised at this point."""

    label: str

    def __str__(self) -> str:
        return f"mark {self.label!r}"


Change: TypeAlias = Named | Written | Truncated
Operation: TypeAlias = Change | Synced | Marked


def overwrite(content: bytearray, offset: int, data: bytes) -> None:
    """Write as a file system does: a gap between the end and `offset` is filled with zeros."""
    if offset > len(content):
        resize(content, offset)
    content[offset : offset + len(data)] = data


def resize(content: bytearray, size: int) -> None:
    """Cut to `size`, or grow with zeros."""
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def change_entries(
    folders: dict[int, dict[str, int]], changes: Iterable[EntryChange], owned: set[int]
) -> None:
    """Change the entries of folders, copying those tables that are not `owned` yet."""
    for folder, name, inode in changes:
        if folder not in owned:
            folders[folder] = dict(folders[folder])
            owned.add(folder)
        if inode is None:
            folders[folder].pop(name, None)
        else:
            folders[folder][name] = inode

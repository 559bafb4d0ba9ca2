"""What stores without real folders share: trees written file by file, folders read off keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.storage.base import Entry, Source


class ObjectTree:
    """A tree on a store whose every file is durable as soon as it is written."""

    def __init__(self, write_file: Callable[[str, Source], None], prefix: str) -> None:
        self._write_file, self._prefix = write_file, prefix.rstrip("/")

    def write(self, name: str, source: Source) -> None:
        self._write_file(below(self._prefix, name), source)

    def make_folder(self, name: str) -> None:
        """Nothing to keep: folders come and go with the objects below them."""

    def finish(self) -> None:
        """Nothing to wait for."""


def folders_of(entries: Iterable[Entry], prefix: str) -> list[str]:
    """Return the names of the folders directly below `prefix` that these entries lie in."""
    start = len(prefix.rstrip("/")) + 1 if prefix else 0
    names = {entry.key[start:].split("/", 1)[0] for entry in entries if "/" in entry.key[start:]}
    return sorted(names)


def below(prefix: str, name: str) -> str:
    """Return the key of what is called `name` in the folder `prefix`, the root if it is empty."""
    return f"{prefix}/{name}" if prefix else name

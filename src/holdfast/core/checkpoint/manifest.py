"""The manifest of a checkpoint, and the merge of the parts of several ranks into one folder.

No clock, no store. A manifest is written last and never rewritten; only the files it names are
in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.names import broken_path_rule, shown
from holdfast.errors import Damaged, FormatTooNew

FORMAT = 1


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a checkpoint, named relative to its folder."""

    path: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Part:
    """What one rank delivered; `folders` are the empty ones, which no file implies."""

    rank: int
    files: tuple[FileEntry, ...]
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Contest:
    """A path that several ranks delivered with different contents: the lowest rank wins."""

    path: str
    winner: int
    losers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """The files of all parts as one folder, with the rank each comes from."""

    files: tuple[FileEntry, ...]
    owners: Mapping[str, int]
    folders: tuple[str, ...]
    contests: tuple[Contest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The record of one committed checkpoint.

    Attributes:
        directory: Its folder, relative to the run's.
        number: Unique in the run's life.
        epoch: The lease under which it was committed.
        step: The step it was saved at, None if the run does not count steps.
        algorithm: How the digests were made.
    """

    run_id: str
    directory: str
    number: int
    epoch: int
    attempt: int
    world_size: int
    created: float
    algorithm: str
    files: tuple[FileEntry, ...]
    folders: tuple[str, ...] = ()
    step: int | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(entry.size for entry in self.files)

    def to_record(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "run": self.run_id,
            "directory": self.directory,
            "number": self.number,
            "epoch": self.epoch,
            "attempt": self.attempt,
            "world_size": self.world_size,
            "step": self.step,
            "created": self.created,
            "metrics": self.metrics,
            "digest": self.algorithm,
            "files": [[entry.path, entry.size, entry.digest] for entry in self.files],
            "folders": list(self.folders),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Manifest:
        """Return the manifest in a record; refuse one that names a path outside its folder."""
        version = record.get("format", 0)
        if _is_count(version) and version > FORMAT:
            raise FormatTooNew(
                f"manifest format {record['format']}, this version reads up to {FORMAT}",
                hint="use the version of Holdfast that wrote it, or a newer one",
            )
        for name, is_right in _FIELDS.items():
            if name not in record:
                raise Damaged(f"the manifest lacks a field: {name}")
            if not is_right(record[name]):
                raise Damaged(f"the record is not a manifest: {name} is {record[name]!r:.40}")
        manifest = cls(
            run_id=record["run"],
            directory=record["directory"],
            number=record["number"],
            epoch=record["epoch"],
            attempt=record["attempt"],
            world_size=record["world_size"],
            step=record["step"],
            created=record["created"],
            metrics=record["metrics"],
            algorithm=record["digest"],
            files=tuple(FileEntry(*entry) for entry in record["files"]),
            folders=tuple(record["folders"]),
        )
        for path in (manifest.directory, *manifest.folders, *(f.path for f in manifest.files)):
            if broken := broken_path_rule(path):
                raise Damaged(f"the manifest names the path {shown(path)}: {broken}")
        return manifest


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_file(value: object) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 3:
        return False
    path, size, digest = value
    return _is_text(path) and _is_count(size) and _is_text(digest)


# What each field of a manifest's record holds, in all versions of the format.
_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "format": _is_count,
    "run": _is_text,
    "directory": _is_text,
    "number": _is_count,
    "epoch": _is_count,
    "attempt": _is_count,
    "world_size": _is_count,
    "step": lambda value: value is None or type(value) is int,
    "created": lambda value: type(value) in (int, float),
    "metrics": lambda value: isinstance(value, dict) and all(map(_is_text, value)),
    "digest": _is_text,
    "files": lambda value: isinstance(value, list | tuple) and all(map(_is_file, value)),
    "folders": lambda value: isinstance(value, list | tuple) and all(map(_is_text, value)),
}


def merge(parts: Iterable[Part]) -> Merged:
    """Return all parts as one folder.

    Of several files with one path the lowest rank's is kept; that is a contest only if their
    contents differ. A file and a folder with one name are settled the same way.
    """
    merging = _Merging()
    for part in sorted(parts, key=lambda part: part.rank):
        for folder in part.folders:
            merging.add_folder(part.rank, folder)
        for entry in part.files:
            merging.add_file(part.rank, entry)
    return merging.merged()


class _Merging:
    """Collects files and folders from the lowest rank up; the first to claim a path keeps it."""

    def __init__(self) -> None:
        self._chosen: dict[str, FileEntry] = {}
        self._owners: dict[str, int] = {}
        self._empty: set[str] = set()
        self._folders: dict[str, tuple[str, int]] = {}  # folder -> path and rank that need it
        self._losers: dict[tuple[str, int], list[int]] = {}  # by path and rank of the winner

    def add_folder(self, rank: int, folder: str) -> None:
        needed = [*_parents(folder), folder]
        if taken := next((path for path in needed if path in self._chosen), None):
            self._lose(taken, self._owners[taken], rank)
            return
        self._empty.add(folder)
        for path in needed:
            self._folders.setdefault(path, (folder, rank))

    def add_file(self, rank: int, entry: FileEntry) -> None:
        path = entry.path
        needed = [path, *_parents(path)]
        taken = next((name for name in needed if name in self._chosen), None)
        if taken is not None:
            if taken != path or self._chosen[path] != entry:
                self._lose(taken, self._owners[taken], rank)
        elif path in self._folders:
            self._lose(*self._folders[path], rank)
        else:
            self._chosen[path], self._owners[path] = entry, rank
            for folder in _parents(path):
                self._folders.setdefault(folder, (path, rank))

    def _lose(self, path: str, winner: int, loser: int) -> None:
        ranks = self._losers.setdefault((path, winner), [])
        if loser not in ranks:
            ranks.append(loser)

    def merged(self) -> Merged:
        filled = {folder for path in self._chosen for folder in _parents(path)}
        return Merged(
            files=tuple(self._chosen[path] for path in sorted(self._chosen)),
            owners=self._owners,
            folders=tuple(sorted(self._empty - filled)),
            contests=tuple(
                Contest(path, winner, tuple(ranks))
                for (path, winner), ranks in sorted(self._losers.items())
            ),
        )


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]

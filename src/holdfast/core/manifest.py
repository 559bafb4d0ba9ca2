"""What a checkpoint is: the list of its files, and how the parts of several ranks become one.

No clock, no store. A manifest is written last and never rewritten; only the files it names are
in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """What one rank delivered; `folders` are the empty ones, which no file would bring along."""

    rank: int
    files: tuple[FileEntry, ...]
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Contest:
    """A path several ranks delivered with different contents: the lowest rank has it."""

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
    """Everything there is to know of one committed checkpoint.

    Attributes:
        directory: Its folder, relative to the run's.
        number: Given out once and never again in the run's life.
        epoch: The lease under which it was committed.
        step: Where training was, or None if the run does not count steps.
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
        if record.get("format", 0) > FORMAT:
            raise FormatTooNew(
                f"manifest format {record['format']}, this version reads up to {FORMAT}",
                hint="use the version of Holdfast that wrote it, or a newer one",
            )
        try:
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
        except (KeyError, TypeError) as error:
            raise Damaged(f"the manifest lacks a field: {error}") from error
        for path in (manifest.directory, *manifest.folders, *(f.path for f in manifest.files)):
            if broken := broken_path_rule(path):
                raise Damaged(f"the manifest names the path {shown(path)}: {broken}")
        return manifest


def merge(parts: Iterable[Part]) -> Merged:
    """Return all parts as one folder.

    Of several files with one path the lowest rank's is kept; that is a contest only where their
    contents differ. A file and a folder cannot share a name either, and are settled the same way.
    """
    ordered = sorted(parts, key=lambda part: part.rank)
    owners: dict[str, int] = {}
    chosen: dict[str, FileEntry] = {}
    losers: dict[str, list[int]] = {}
    used_as_folder: dict[str, str] = {}  # folder -> the first file that needed it
    for part in ordered:
        for entry in part.files:
            rival = _rival(entry.path, chosen, used_as_folder)
            if rival is None:
                chosen[entry.path] = entry
                owners[entry.path] = part.rank
                for folder in _parents(entry.path):
                    used_as_folder.setdefault(folder, entry.path)
            elif rival != entry.path or chosen[rival] != entry:
                losers.setdefault(rival, []).append(part.rank)
    wanted = {f for part in ordered for f in part.folders}
    folders = {f for f in wanted if f not in used_as_folder and _rival(f, chosen, {}) is None}
    return Merged(
        files=tuple(chosen[path] for path in sorted(chosen)),
        owners=owners,
        folders=tuple(sorted(folders)),
        contests=tuple(
            Contest(path, owners[path], tuple(dict.fromkeys(ranks)))
            for path, ranks in sorted(losers.items())
        ),
    )


def _rival(
    path: str, chosen: Mapping[str, FileEntry], used_as_folder: Mapping[str, str]
) -> str | None:
    """Return the path already chosen that `path` cannot stand beside."""
    if path in chosen:
        return path
    if path in used_as_folder:
        return used_as_folder[path]
    return next((folder for folder in _parents(path) if folder in chosen), None)


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]

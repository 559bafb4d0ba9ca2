"""Plans for rows in files: listed when the dataset is made, read when rows are wanted.

A plan is sent to workers as paths, and for Parquet with the number of rows of each row group when
the files were listed, so that all ranks count the same rows even if a file is replaced meanwhile.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from holdfast.data.blocks import Block, chunks, picked, take
from holdfast.data.column_steps import check_columns
from holdfast.data.fingerprint import File, describe_files
from holdfast.data.libraries import library
from holdfast.data.plan import Plan
from holdfast.data.selection import Wanted, within
from holdfast.errors import ConfigError
from holdfast.storage.foreign.arrow import open_location
from holdfast.storage.uris import from_home, shown_location

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

PARQUET = (".parquet", ".pq")
CSV = (".csv", ".csv.gz", ".csv.bz2", ".csv.zst")
JSON = (".json", ".jsonl", ".json.gz", ".jsonl.gz")


@dataclass(frozen=True)
class Listed:
    """The files at one path that a user gave; `base` is the folder that contains them."""

    filesystem: Any
    base: str
    files: tuple[str, ...]
    sizes: tuple[int | None, ...]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Parquet(Plan):
    """Rows of Parquet files; row groups without a wanted row are not read."""

    fragments: tuple[tuple[Any, tuple[int, ...]], ...]  # a file, and the rows of its row groups
    schema: Any
    names: tuple[tuple[str, int | None], ...] = ()  # relative path and size of each file
    columns: tuple[str, ...] | None = None
    kind: ClassVar[str] = "parquet"

    def identity(self) -> dict[str, Any]:
        return describe_files(
            [
                (name, size, sum(groups), len(groups))
                for (name, size), (_, groups) in zip(self.names, self.fragments, strict=True)
            ]
        )

    def length(self) -> int:
        return sum(sum(groups) for _, groups in self.fragments)

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        low = 0
        for fragment, groups in self.fragments:
            for number, rows in enumerate(groups):
                here = within(wanted, low, low + rows)
                if len(here):
                    yield from chunks(take(self._group(fragment, number, rows), here))
                low += rows

    def _group(self, fragment: Any, number: int, rows: int) -> Any:
        columns = None if self.columns is None else list(self.columns)
        changed = (
            f"{fragment.path} changed while it was in use: row group {number} had {rows} rows when"
            " the dataset was made, now "
        )
        with _noting(f"row group {number} of {fragment.path}"):
            try:
                group = fragment.subset(row_group_ids=[number])
                table = group.to_table(schema=self.schema, columns=columns)
            except FileNotFoundError:
                raise ConfigError(f"{changed}the file is gone") from None
            except IndexError:
                raise ConfigError(f"{changed}the file has other row groups") from None
        if table.num_rows != rows:
            raise ConfigError(f"{changed}it has {table.num_rows}")
        return table

    def selected(self, names: Iterable[str]) -> Parquet:
        """Return a plan that reads only these columns."""
        chosen = tuple(names)
        check_columns(chosen, self.columns or self.schema.names)
        return replace(self, columns=chosen)

    def described(self) -> str:
        return f"{self.length()} rows in {len(self.fragments)} Parquet files"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TextFiles(Plan):
    """Rows of CSV or JSON files, one whole file at a time."""

    listed: tuple[Listed, ...]
    kind_of_file: str
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "text"

    def identity(self) -> dict[str, Any]:
        names = relative_names(self.listed)
        files: list[File] = [
            (names[file], size, None, None)
            for listed in self.listed
            for file, size in zip(listed.files, listed.sizes, strict=True)
        ]
        reading = self.options.get("read_options")
        skipped = [getattr(reading, f"skip_rows{name}", 0) for name in ("", "_after_names")]
        return {"format": self.kind_of_file, "skipped": skipped, **describe_files(files)}

    def length(self) -> None:
        return None

    def blocks(self, wanted: Wanted, epoch: int) -> Iterator[Block]:
        return picked(self._read(), wanted)

    def _read(self) -> Iterator[Block]:
        for listed in self.listed:
            for path in listed.files:
                with _noting(path), listed.filesystem.open_input_stream(path) as stream:
                    if self.kind_of_file == "CSV":
                        block = library("pyarrow.csv").read_csv(stream, **self.options)
                    else:
                        block = _json_rows(stream, path, self.options)
                yield from chunks(block)

    def described(self) -> str:
        return f"{sum(len(listed.files) for listed in self.listed)} {self.kind_of_file} files"


def parquet_plan(paths: Paths, columns: Iterable[str] | None, filesystem: Any) -> Parquet:
    """Return a plan for the Parquet files at `paths`; reads their footers, and no rows."""
    ds, pa = library("pyarrow.dataset"), library("pyarrow")
    fragments: list[tuple[Any, tuple[int, ...]]] = []
    schemas = []
    names: list[tuple[str, int | None]] = []
    everything = listing(paths, PARQUET, filesystem)
    relative = relative_names(everything)
    for listed in everything:
        sizes = dict(zip(listed.files, listed.sizes, strict=True))
        dataset = ds.dataset(
            list(listed.files),
            filesystem=listed.filesystem,
            format="parquet",
            partitioning="hive",
            partition_base_dir=listed.base,
        )
        for fragment in sorted(dataset.get_fragments(), key=lambda fragment: str(fragment.path)):
            fragments.append((fragment, tuple(group.num_rows for group in fragment.row_groups)))
            schemas.append(fragment.physical_schema)
            names.append((relative[fragment.path], sizes[fragment.path]))
        schemas.append(dataset.schema)  # names of folders can be columns too
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise ConfigError(
            f"the files at {_all_shown(paths)} have incompatible schemas: {error}"
        ) from error
    plan = Parquet(fragments=tuple(fragments), schema=schema, names=tuple(names))
    return plan if columns is None else plan.selected(columns)


def text_plan(
    paths: Paths, kind: str, endings: tuple[str, ...], filesystem: Any, options: Mapping[str, Any]
) -> TextFiles:
    """Return a plan for the CSV or JSON files at `paths`."""
    return TextFiles(listed=listing(paths, endings, filesystem), kind_of_file=kind, options=options)


def _all_shown(paths: Paths) -> str:
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    return ", ".join(shown_location(os.fspath(path)) for path in given)


def listing(paths: Paths, endings: tuple[str, ...], filesystem: Any) -> tuple[Listed, ...]:
    """Return the files at `paths`; a folder stands for all files below it with these endings."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise ConfigError("no path was given: at least one file or folder is needed")
    return tuple(_listed(os.fspath(path), endings, filesystem) for path in given)


def _listed(path: str, endings: tuple[str, ...], filesystem: Any) -> Listed:
    fs = library("pyarrow.fs")
    if filesystem is not None:
        inside = path
        if not isinstance(filesystem, fs.FileSystem):
            filesystem = fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    elif "://" in path:
        filesystem, inside = open_location(path)
    else:
        filesystem, inside = fs.LocalFileSystem(), os.path.abspath(from_home(path))
    info = filesystem.get_file_info(inside)
    if info.type == fs.FileType.NotFound:
        raise ConfigError(f"{shown_location(path)}: there is no such file or folder")
    if info.type == fs.FileType.File:
        return Listed(filesystem, os.path.dirname(inside), (inside,), (info.size,))
    below = filesystem.get_file_info(fs.FileSelector(inside, recursive=True))
    sizes = {entry.path: entry.size for entry in below if entry.type == fs.FileType.File}
    files = sorted(file for file in sizes if _is_data(file.removeprefix(inside), endings))
    if not files:
        raise ConfigError(
            f"{shown_location(path)}: no file in this folder ends with {' or '.join(endings)}",
            hint="name the files themselves" if sizes else None,
        )
    return Listed(filesystem, inside, tuple(files), tuple(sizes[file] for file in files))


def relative_names(listed: Sequence[Listed]) -> dict[str, str]:
    """Return the path of each file relative to the common folder of all files."""
    files = [file for part in listed for file in part.files]
    try:
        common = posixpath.commonpath([part.base for part in listed])
    except ValueError:  # some paths are absolute and some are not
        return {file: file for file in files}
    return {file: posixpath.relpath(file, common) for file in files}


def _is_data(name: str, endings: tuple[str, ...]) -> bool:
    hidden = any(part.startswith(("_", ".")) for part in name.split("/"))
    return name.lower().endswith(endings) and not hidden


@contextmanager
def _noting(source: str) -> Iterator[None]:
    """Add a note about what was read to errors of Arrow, which do not mention it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"while reading {source}")
        raise


def _json_rows(stream: Any, path: str, options: Mapping[str, Any]) -> Block:
    """Return the rows of a file with one JSON object per line, or with one JSON list."""
    text = stream.read()
    if not text.lstrip().startswith(b"["):
        source = library("pyarrow").BufferReader(text)
        return library("pyarrow.json").read_json(source, **options)
    import json

    rows = json.loads(text)
    if not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"{path}: a list of JSON objects is needed, one per row")
    return rows

"""The public `Checkpoint`: a reference to a folder of files, local or remote."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from holdfast.checkpoint.fetch import fetch_once, using_copy
from holdfast.checkpoint.manifests import PRIVATE
from holdfast.checkpoint.metadata import as_metadata, read_metadata, write_metadata
from holdfast.checkpoint.verification import identity_of, manifest_of, must_be_whole
from holdfast.core.checkpoint.manifest import FileEntry, Manifest
from holdfast.errors import ConfigError
from holdfast.storage.base import Store
from holdfast.storage.foreign.arrow import (
    absolute,
    arrow_filesystem,
    filesystem_of,
    filesystem_path,
)
from holdfast.storage.local.disk import NO_FILE
from holdfast.storage.locate import child, describe, open_store, reopen
from holdfast.storage.parallel import Watch
from holdfast.storage.transfer import download_tree
from holdfast.storage.uris import from_home, without_secrets

_REMOVED = {
    "from_dict": "write the dictionary to a file in a folder and use Checkpoint.from_directory",
    "to_dict": "read the file you saved from the folder that as_directory() gives",
    "from_bytes": "write the bytes to a file in a folder and use Checkpoint.from_directory",
    "to_bytes": "read the files from the folder that as_directory() gives",
    "from_uri": "use Checkpoint(uri)",
    "to_uri": "use Checkpoint.path",
    "uri": "use Checkpoint.path",
    "get_internal_representation": "use Checkpoint.path and Checkpoint.filesystem",
    "get_preprocessor": "keep it in the metadata: get_metadata()",
    "set_preprocessor": "keep it in the metadata: set_metadata()",
}


class _CheckpointType(type):
    """Names the replacement when a removed class attribute is used, as `Checkpoint.from_dict`."""

    def __getattr__(cls, name: str) -> NoReturn:
        raise AttributeError(_missing_attribute(name))


class Checkpoint(metaclass=_CheckpointType):
    """A folder of files at `path`, on this machine or on any storage Holdfast can reach.

    Args:
        path: A folder, or a URI such as `s3://bucket/folder`.
        filesystem: A pyarrow or fsspec filesystem that `path` is on, if it is not a plain
            path or a URI.
    """

    def __init__(self, path: str | os.PathLike[str], filesystem: Any | None = None) -> None:
        self._location = os.fspath(path) if filesystem is not None else absolute(path)
        self._given_filesystem = filesystem
        self._name = secrets.token_hex(16)
        self._opened: Store | None = None
        self._run: tuple[dict[str, Any], str] | None = None
        self._is_trusted = False  # whether the driver has verified it for this process

    @classmethod
    def in_run(cls, store: Store, directory: str) -> Checkpoint:
        """Return the checkpoint that was committed to `directory` of the run in `store`."""
        checkpoint = cls(f"{store.url}/{directory}")
        checkpoint._run = describe(store), directory
        return checkpoint

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Return the checkpoint in a local folder."""
        return cls(os.path.abspath(from_home(os.fspath(path))))

    @property
    def path(self) -> str:
        """The path of the files on `filesystem`, without a scheme."""
        if self._run is None:
            return filesystem_path(self._location)
        described, directory = self._run
        if "filesystem" not in described:
            return filesystem_path(self._location)
        return "/".join(filter(None, (described["path"], described.get("below"), directory)))

    @property
    def filesystem(self) -> Any:
        """The pyarrow filesystem that `path` is on."""
        if self._given_filesystem is not None:
            return self._given_filesystem
        return (
            arrow_filesystem(self._location) if self._run is None else filesystem_of(self._run[0])
        )

    # ------------------------------------------------------------------ files

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """Provide a local folder with the checkpoint's files, for reading only.

        Local files are not copied. Remote ones are fetched: one copy per machine, shared by all its
        processes, and removed when the last of them has left the block. Only workers of a run keep
        it, for the next time. A committed checkpoint is verified first, once per process; see
        `verify`.
        """
        local = self._store.local
        if local is not None:
            self.verify()
            yield local.root
            return
        identity, files = self._identity()
        with using_copy(identity, self._copy_to, files) as copy:
            yield str(copy)

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the files to the folder `path` and return it.

        Without `path`, return a folder that all processes of this machine share; it exists until
        this process ends.
        """
        self._must_exist()
        if path is None:
            identity, files = self._identity()
            return str(fetch_once(identity, self._copy_to, files))
        target = os.path.abspath(from_home(os.fspath(path)))
        os.makedirs(target, exist_ok=True)
        self._copy_to(target)
        return target

    def verify(self) -> None:
        """Raise `Damaged` if a run has committed it and its files have changed since.

        Reads every byte, once per process. A folder that no run has committed only has to exist.
        """
        self._must_exist()
        home = None if self._is_trusted else self._home()
        if home is not None:
            must_be_whole(*home)

    def _must_exist(self) -> None:
        """Raise if a local folder is missing, because it would look like an empty one."""
        local = self._store.local
        if local is None or os.path.isdir(local.root):
            return
        if os.path.exists(local.root):
            raise ConfigError(
                f"the checkpoint {local.root} is a file: a checkpoint must be a folder",
                hint="save it into its own folder, and name that",
            )
        raise ConfigError(
            f"the checkpoint folder {local.root} does not exist",
            hint="it was moved or deleted; check the path",
        )

    def _identity(self) -> tuple[str, Sequence[FileEntry]]:
        """Return the name of its copy in the cache, and its files if they are known."""
        manifest = self._manifest()
        if manifest is None:
            # The files may change, so only this object and its pickled copies share the copy.
            return self._name, ()
        return identity_of(manifest), manifest.files

    def _copy_to(self, target: str, watch: Watch | None = None) -> None:
        manifest = self._manifest()
        if manifest is not None:
            files, folders = manifest.files, manifest.folders
            download_tree(self._store, "", files, target, folders=folders, watch=watch)
            return
        entries = [FileEntry(e.key, e.size, "") for e in self._store.entries()]
        if not entries and self._store.local is None:
            raise ConfigError(f"there is no checkpoint at {self._store.url}", hint="check the path")
        download_tree(self._store, "", entries, target, watch=watch)

    def _manifest(self) -> Manifest | None:
        """Return the manifest if this is a committed checkpoint of a run."""
        home = self._home()
        return manifest_of(*home) if home else None

    def _home(self) -> tuple[Store, str] | None:
        """Return the run this checkpoint was committed to, and its folder there; None if none."""
        if self._run is not None:
            return reopen(self._run[0]), self._run[1]
        home = self._home_of(self._location)
        local = self._store.local
        if home is None and local is not None:
            real = os.path.realpath(local.root)  # a link may lead into a run
            home = self._home_of(real) if real != local.root else None
        return home

    def _home_of(self, location: str) -> tuple[Store, str] | None:
        location, _, query = location.partition("?")
        parts = location.rstrip("/").split("/")
        is_path = location.startswith("/") and self._given_filesystem is None
        for depth in range(1, min(4, len(parts))):
            run, folder = "/".join(parts[:-depth]), "/".join(parts[-depth:])
            if not run or run.endswith((":", ":/")):
                return None
            manifest = f"{PRIVATE}/manifests/{folder}.json"
            if is_path and _is_missing(f"{run}/{manifest}"):
                continue  # a cheap check, because the training loop waits for this
            store = open_store(run + (f"?{query}" if query else ""), self._given_filesystem)
            if store.stat(manifest) is not None:
                return store, folder
        return None

    @property
    def _store(self) -> Store:
        if self._opened is None and self._run is not None:
            self._opened = child(reopen(self._run[0]), self._run[1])
        elif self._opened is None:
            self._opened = open_store(self._location, self._given_filesystem)
        return self._opened

    # ------------------------------------------------------------------ metadata

    def get_metadata(self) -> dict[str, Any]:
        """Return the metadata of the checkpoint, {} if it has none."""
        return read_metadata(self._store, self._home())

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of the checkpoint; it must be JSON data."""
        write_metadata(self._store, self._home(), metadata)

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add to the metadata of the checkpoint, replacing values of the same name."""
        self.set_metadata({**self.get_metadata(), **as_metadata(metadata)})

    # ------------------------------------------------------------------ special methods

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_is_trusted": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"Checkpoint({without_secrets(self._location)!r})"

    def __fspath__(self) -> NoReturn:
        raise TypeError("a Checkpoint is not a path; use `with checkpoint.as_directory() as path`")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(_missing_attribute(name))


def trust(checkpoint: Checkpoint) -> Checkpoint:
    """Mark a checkpoint as verified by the driver, so that this process does not verify it."""
    checkpoint._is_trusted = True  # noqa: SLF001
    return checkpoint


def location_of(checkpoint: Checkpoint) -> str:
    """Return the local folder of a checkpoint, or its path on remote storage."""
    local = checkpoint._store.local  # noqa: SLF001
    return checkpoint.path if local is None else local.root


def _is_missing(path: str) -> bool:
    """Whether the path certainly does not exist; after other errors, the store is asked."""
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno in NO_FILE
    return False


def _missing_attribute(name: str) -> str:
    if name in _REMOVED:
        return f"Checkpoint.{name} was removed: {_REMOVED[name]}"
    return f"a Checkpoint has no attribute {name!r}"

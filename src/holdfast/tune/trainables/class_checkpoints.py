"""Stores what a class trainable returns from a save, and returns it for the load.

A class writes files, or returns a dictionary, or, in older code, a path or a prefix of paths inside
the folder. Files need nothing more; the others are stored in a file beside the user's.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import pickle
import posixpath
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import cloudpickle

from holdfast.checkpoint import Checkpoint
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.storage.uris import from_home, without_secrets

DICTIONARY = "_dict_checkpoint.pkl"
PREFIX = ".tune_path.json"
COUNTERS = ".tune_counters.json"  # beside what is saved outside a trial


def store(folder: str, returned: object, name: str) -> None:
    """Store in `folder` what a save of the trainable `name` returned."""
    for file_name in (DICTIONARY, PREFIX):  # of an earlier save to the same folder
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(folder, file_name))
    if returned is None:
        return
    if isinstance(returned, dict):
        with open(os.path.join(folder, DICTIONARY), "wb") as file:
            cloudpickle.dump(returned, file)
        return
    if not isinstance(returned, str | os.PathLike):
        raise ConfigError(
            f"{name} returned {shown(returned)} when it was saved, which is neither a dictionary"
            " nor a path",
            hint="write files to the folder and return nothing, or return the state as a dict",
        )
    inside = os.path.relpath(os.fspath(returned), folder)
    if _is_outside(inside):  # unless the path and the folder differ by a symbolic link
        inside = os.path.relpath(os.path.realpath(returned), os.path.realpath(folder))
    if _is_outside(inside):
        raise ConfigError(
            f"{name} was to be saved to {folder}, and returned {os.fspath(returned)}, which is"
            " outside of it",
            hint="save inside the folder that is given to the method",
        )
    if inside != os.curdir:
        with open(os.path.join(folder, PREFIX), "w", encoding="utf-8") as file:
            json.dump({"path": inside}, file)


def _is_outside(relative: str) -> bool:
    return relative == os.pardir or relative.startswith(os.pardir + os.sep)


def folder_of(path: str | os.PathLike[str]) -> str:
    """Return the folder of a checkpoint from its path, or from a path that a save returned.

    Raises `ConfigError` if there is none.
    """
    location = from_home(os.fspath(path))
    if os.path.isdir(location):
        return location
    parent, name = os.path.split(location)
    if os.path.isdir(parent):
        inside = load(parent)
        if isinstance(inside, str) and os.path.basename(inside) == name:
            return parent
    raise ConfigError(
        f"there is no checkpoint at {without_secrets(location)}",
        hint="give the folder of one, such as {storage_path}/{name}/{trial}/checkpoint_000000",
    )


def packed(folder: str) -> bytes:
    """Return all files of a folder as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, arcname=".")
    return buffer.getvalue()


def unpack(files: bytes, folder: str) -> None:
    """Write what `packed` returned to a folder."""
    with tarfile.open(fileobj=io.BytesIO(files)) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:  # before Python 3.11.4
            _must_stay_inside(archive.getmembers())
            archive.extractall(folder)


def _must_stay_inside(members: Sequence[tarfile.TarInfo]) -> None:
    """Raise if a member of an archive would be written, or links, outside of its folder."""
    links = {posixpath.normpath(member.name) for member in members if member.issym()}
    for member in members:
        name, is_link = member.name, member.issym() or member.islnk()
        parents = {str(parent) for parent in PurePosixPath(name).parents}
        base = posixpath.dirname(name) if member.issym() else ""
        target = member.linkname if is_link else ""
        is_plain = member.isreg() or member.isdir() or is_link
        if not is_plain or parents & links or _leads_out("", name) or _leads_out(base, target):
            raise ConfigError(
                f"{name!r} in a saved trainable is not a file inside its folder",
                hint="give restore_from_object what save_to_object has returned",
            )


def _leads_out(base: str, path: str) -> bool:
    """Whether a path leads out of an archive, from its folder `base`, or goes up after going down.

    A `..` after a name is refused because that name may be a link to anywhere.
    """
    parts = PurePosixPath(path).parts
    down = list(itertools.dropwhile(lambda part: part == os.pardir, parts))
    joined = posixpath.normpath(posixpath.join(base, path))
    return posixpath.isabs(path) or os.pardir in down or _is_outside(joined)


def load(folder: str) -> Any:
    """Return the argument of a load: a dictionary, a path inside the folder, or the folder."""
    dictionary = os.path.join(folder, DICTIONARY)
    if os.path.exists(dictionary):
        with open(dictionary, "rb") as file:
            return pickle.load(file)  # noqa: S301  # the user's own state, verified
    prefix = os.path.join(folder, PREFIX)
    if os.path.exists(prefix):
        with open(prefix, encoding="utf-8") as file:
            return os.path.join(folder, json.load(file)["path"])
    return folder


def counters_of(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """Return how far a trial had come when it was saved, under the names that results use.

    A checkpoint of a study has them in its manifest; one saved outside a trial has them in a file.
    """
    with checkpoint.as_directory() as folder:
        path = os.path.join(folder, COUNTERS)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                counters: dict[str, Any] = json.load(file)
                return counters
    manifest = checkpoint._manifest()  # noqa: SLF001  # ours, not the user's
    return {} if manifest is None else manifest.metrics

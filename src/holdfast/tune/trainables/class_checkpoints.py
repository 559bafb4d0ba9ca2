"""What a class trainable returns when it is saved, in a folder, and back for when it is loaded.

A class writes files, or returns a dictionary, or, of older eras, a path or the prefix of paths
inside the folder. The first needs nothing; what else there is to know is a file beside the user's.
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
    """Keep what a save has returned."""
    for left in (DICTIONARY, PREFIX):  # by an earlier save to the same folder
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(folder, left))
    if returned is None:
        return
    if isinstance(returned, dict):
        with open(os.path.join(folder, DICTIONARY), "wb") as file:
            cloudpickle.dump(returned, file)
        return
    if not isinstance(returned, str | os.PathLike):
        raise ConfigError(
            f"{name} returned {shown(returned)} when it was saved: that is neither a dictionary nor"
            " a path",
            hint="write files to the folder and return nothing, or return the state as a dict",
        )
    inside = os.path.relpath(os.fspath(returned), folder)
    if _is_outside(inside):  # or the folder was reached by another way
        inside = os.path.relpath(os.path.realpath(returned), os.path.realpath(folder))
    if _is_outside(inside):
        raise ConfigError(
            f"{name} was to be saved to {folder} and says it is at {os.fspath(returned)}",
            hint="save inside the folder that is given to the method",
        )
    if inside != os.curdir:
        with open(os.path.join(folder, PREFIX), "w", encoding="utf-8") as file:
            json.dump({"path": inside}, file)


def _is_outside(relative: str) -> bool:
    return relative == os.pardir or relative.startswith(os.pardir + os.sep)


def folder_of(path: str | os.PathLike[str]) -> str:
    """Return the folder of a checkpoint from its path, or from what a save returned into it.

    Raises if there is none.
    """
    given = from_home(os.fspath(path))
    if os.path.isdir(given):
        return given
    above, name = os.path.split(given)
    if os.path.isdir(above):
        inside = load(above)
        if isinstance(inside, str) and os.path.basename(inside) == name:
            return above
    raise ConfigError(
        f"there is no checkpoint at {without_secrets(given)}",
        hint="give the folder of one, such as {storage_path}/{name}/{trial}/checkpoint_000000",
    )


def packed(folder: str) -> bytes:
    """Return all files of a folder as one object."""
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
    """Raise if something in an archive would be written, or lead, outside the folder it is for."""
    links = {posixpath.normpath(one.name) for one in members if one.issym()}
    for one in members:
        above = {str(part) for part in PurePosixPath(one.name).parents}
        base = posixpath.dirname(one.name) if one.issym() else ""
        target = one.linkname if one.issym() or one.islnk() else ""
        is_plain = one.isreg() or one.isdir() or one.issym() or one.islnk()
        if not is_plain or above & links or _leads_out("", one.name) or _leads_out(base, target):
            raise ConfigError(
                f"{one.name!r} in a saved trainable is not a file inside its folder",
                hint="give restore_from_object what save_to_object has returned",
            )


def _leads_out(base: str, path: str) -> bool:
    """Whether a path leads out of an archive, from its folder `base`, or goes up after going down.

    What follows a link is not known from its name, so neither is what lies above it.
    """
    parts = PurePosixPath(path).parts
    down = list(itertools.dropwhile(lambda part: part == os.pardir, parts))
    whole = posixpath.normpath(posixpath.join(base, path))
    return posixpath.isabs(path) or os.pardir in down or _is_outside(whole)


def load(folder: str) -> Any:
    """Return what a load is to be given: a dictionary, a path inside the folder, or the folder."""
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
    """Return what is known of how far a trial had come when it was saved, by the names of results.

    A checkpoint of a study has that in its manifest; one that was saved outside a trial, in a file.
    """
    with checkpoint.as_directory() as folder:
        path = os.path.join(folder, COUNTERS)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found: dict[str, Any] = json.load(file)
                return found
    manifest = checkpoint._manifest()  # noqa: SLF001  # ours, not the user's
    return {} if manifest is None else manifest.metrics

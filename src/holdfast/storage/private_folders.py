"""Folders for temporary files that other users of this machine can neither read nor change.

    <TMPDIR>/holdfast-<uid>/             made with mode 0700 and checked before every use
    <TMPDIR>/holdfast-<uid>-<random>/    used instead if something else has that name

The temporary folder is shared: any user can create a folder, link or file under the name we are
about to use. So a folder is used only if it is real (`lstat`), belongs to this user, and is not
writable by others. Otherwise one with a random name is used, which all processes of this user find
by its owner. Nobody can replace it later, because shared folders such as `/tmp` are sticky: only
the owner of an entry can rename or remove it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
from collections.abc import Iterator

from holdfast.errors import ConfigError
from holdfast.storage.local.errors import explained

log = logging.getLogger(__name__)

MODE = 0o700
_NOBODY = 65534  # shown for owners that are unknown in this user namespace
_warned_of: set[str] = set()


def private_folder(*parts: str) -> str:
    """Return the folder `parts` for temporary files of this user, created if missing.

    Raises:
        ConfigError: Another user could have created a part of it.
        StoreError: It cannot be created: the disk is full, or read-only.
    """
    path = _root()
    for part in parts:
        path = os.path.join(path, part)
        make_private(path)
    return path


def find_private_folder(*parts: str) -> str | None:
    """Return the folder that `private_folder` would return, None if it does not exist."""
    try:
        base = tempfile.gettempdir()
    except FileNotFoundError:  # there is no temporary folder
        return None
    for root in _candidates(base):
        if _is_private(root):
            path = os.path.join(root, *parts)
            return path if _is_private(path) else None
    return None


def make_private(path: str) -> None:
    """Create the folder `path` for this user alone; an existing one must be private already."""
    with explained("make", path, None):
        if not _is_made_private(path):
            raise ConfigError(
                f"{path} is not a folder that only this user can write to, so its contents cannot"
                " be trusted",
                hint="remove it, or set TMPDIR to a folder of your own",
            )


def _root() -> str:
    base = tempfile.gettempdir()
    _warn_if_replaceable(base)
    candidates = _candidates(base)
    first = next(candidates)
    with explained("make", first, None):
        if _is_made_private(first):
            return first
        for path in candidates:
            if _is_private(path):
                return path
        path = tempfile.mkdtemp(prefix=f"{os.path.basename(first)}-", dir=base)
    log.warning("%s belongs to another user; %s is used instead", first, path)
    return path


def _candidates(base: str) -> Iterator[str]:
    """Yield possible paths of the root, the usual one first."""
    usual = f"holdfast-{os.geteuid()}"
    yield os.path.join(base, usual)
    with contextlib.suppress(OSError):  # a folder that can be written to but not listed
        for name in sorted(os.listdir(base)):
            if name.startswith(f"{usual}-"):
                yield os.path.join(base, name)


def _is_made_private(path: str) -> bool:
    # The mode is an argument of mkdir, so that the folder is never open to others.
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, MODE)
    return _is_private(path)


def _is_private(path: str) -> bool:
    """Whether this is a real folder of this user that others cannot write to."""
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (
        stat.S_ISDIR(info.st_mode)
        and info.st_uid == os.geteuid()
        and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _warn_if_replaceable(base: str) -> None:
    """Warn once if other users can replace files in the temporary folder.

    Not an error: volumes of containers are like that, where there are no other users.
    """
    if base in _warned_of:
        return
    _warned_of.add(base)
    path = os.path.realpath(base)
    while True:
        if _others_can_replace_in(path):
            log.warning(
                "other users of this machine can replace files in %s, including fetched"
                " checkpoints: make it sticky (chmod +t), or set TMPDIR to a folder of your own",
                path,
            )  # fmt: skip
            return
        if path == (path := os.path.dirname(path)):
            return


def _others_can_replace_in(folder: str) -> bool:
    try:
        info = os.stat(folder)
    except OSError:
        return False  # gone: creating a folder in it reports that
    is_sticky_or_closed = not info.st_mode & stat.S_IWOTH or info.st_mode & stat.S_ISVTX
    return not is_sticky_or_closed or info.st_uid not in (0, os.geteuid(), _NOBODY)

"""Folders for temporary files that no other user of this machine can look into or change.

    <TMPDIR>/holdfast-<uid>/             made with 0700 and looked at before every use
    <TMPDIR>/holdfast-<uid>-<random>/    instead, if something else has that name

The folder for temporary files is shared: anybody can make a folder, a link or a file of a name that
we are going to use, before we do. So a folder counts as ours only if it is a real folder (`lstat`),
belongs to this user, and lets nobody else write. What is not ours is not used, and stops nobody:
the next name is one that nobody could guess, and all processes of this user find it by its owner.
Nobody else can put one in its place later, because folders that all can write to, such as `/tmp`,
are sticky: only the owner renames or removes what is in them.
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
_NOBODY = 65534  # how the owner looks who is unknown in this user namespace
_warned_of: set[str] = set()


def private_folder(*parts: str) -> str:
    """Return the folder `parts` for temporary files of this user, made if it is not there.

    Raises:
        ConfigError: A part of it is something that others could have put there.
        StoreError: It cannot be made: the disk is full, or read-only.
    """
    path = _root()
    for part in parts:
        path = os.path.join(path, part)
        make_private(path)
    return path


def find_private_folder(*parts: str) -> str | None:
    """Return the folder that `private_folder` would, None if nobody has made it yet."""
    try:
        base = tempfile.gettempdir()
    except FileNotFoundError:  # there is no folder for temporary files
        return None
    for root in _candidates(base):
        if _is_private(root):
            path = os.path.join(root, *parts)
            return path if _is_private(path) else None
    return None


def make_private(path: str) -> None:
    """Make the folder `path` for this user alone; one that is there must be so already."""
    with explained("make", path, None):
        if not _is_made_private(path):
            raise ConfigError(
                f"{path} is not a folder that only this user can write to, so what is in it cannot"
                " be trusted",
                hint="remove it, or set TMPDIR to a folder of your own",
            )


def _root() -> str:
    base = tempfile.gettempdir()
    _warn_if_shared_carelessly(base)
    others = _candidates(base)
    first = next(others)
    with explained("make", first, None):
        if _is_made_private(first):
            return first
        for path in others:
            if _is_private(path):
                return path
        path = tempfile.mkdtemp(prefix=f"{os.path.basename(first)}-", dir=base)
    log.warning("%s was made by somebody else and is not used; %s is instead", first, path)
    return path


def _candidates(base: str) -> Iterator[str]:
    """Yield what the root may be called: by its usual name first."""
    usual = f"holdfast-{os.geteuid()}"
    yield os.path.join(base, usual)
    with contextlib.suppress(OSError):  # a folder that may be written to and not be listed
        for name in sorted(os.listdir(base)):
            if name.startswith(f"{usual}-"):
                yield os.path.join(base, name)


def _is_made_private(path: str) -> bool:
    # The mode is given to the call itself: what is right a moment later was wrong for a moment.
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, MODE)
    return _is_private(path)


def _is_private(path: str) -> bool:
    """Whether this is a real folder of this user that nobody else can write to."""
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (
        stat.S_ISDIR(info.st_mode)
        and info.st_uid == os.geteuid()
        and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _warn_if_shared_carelessly(base: str) -> None:
    """Say once that others can replace what is in the folder for temporary files.

    It is no error: volumes of containers are like that, where there are no others.
    """
    if base in _warned_of:
        return
    _warned_of.add(base)
    path = os.path.realpath(base)
    while True:
        if _others_can_replace_in(path):
            log.warning(
                "other users of this machine can replace what is in %s, checkpoints that are"
                " fetched included: make it sticky (chmod +t), or set TMPDIR to a folder of your"
                " own", path,
            )  # fmt: skip
            return
        if path == (path := os.path.dirname(path)):
            return


def _others_can_replace_in(folder: str) -> bool:
    try:
        info = os.stat(folder)
    except OSError:
        return False  # it is gone, which whoever makes a folder in it will say
    is_sticky_or_closed = not info.st_mode & stat.S_IWOTH or info.st_mode & stat.S_ISVTX
    return not is_sticky_or_closed or info.st_uid not in (0, os.geteuid(), _NOBODY)

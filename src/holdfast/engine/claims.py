"""Claims of runs on resources that the trials of a study share, as locked files.

    <folder>/driver        locked by the driver of the study; without a lock the folder is litter
    <folder>/lock          locked while claims are read and one is added
    <folder>/<name>.claim  one claim, locked by the process that has made it

Locks are the kernel's (flock): the claims of a process that is killed end with it. Workers that
were forked from it hold its claim until they have ended as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence

from holdfast.core.study.offers import Claim
from holdfast.storage.private_folders import private_folder

_FOLDER = "claims"


class ClaimsFolder:
    """The folder for the claims of one study, made by its driver."""

    def __init__(self) -> None:
        root = private_folder(_FOLDER)
        with _locked(os.path.join(root, "lock")):  # so that no sweep removes a folder being made
            _sweep(root)
            self.path = private_folder(_FOLDER, secrets.token_hex(8))
            self._handle = _open(os.path.join(self.path, "driver"))
            fcntl.flock(self._handle, fcntl.LOCK_SH)

    def close(self) -> None:
        """Remove the folder; nothing can be claimed any more."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


class HeldClaim:
    """A claim of this process, valid until it is released or the process ends."""

    def __init__(self, path: str, handle: int) -> None:
        self._path, self._handle = path, handle

    def release(self) -> None:
        """Give back what was claimed; idempotent."""
        if self._handle < 0:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        os.close(self._handle)
        self._handle = -1


def claim(
    folder: str, choose: Callable[[list[Claim]], Sequence[Claim] | None]
) -> tuple[Sequence[Claim], HeldClaim] | None:
    """Claim what `choose` returns, given the claims of all others; return None if it does."""
    with _locked(os.path.join(folder, "lock")):
        chosen = choose(_claims_in(folder))
        if chosen is None:
            return None
        path = os.path.join(folder, f"{secrets.token_hex(8)}.claim")
        handle = _open(path)
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, json.dumps([_to_data(part) for part in chosen]).encode())
    return chosen, HeldClaim(path, handle)


def _claims_in(folder: str) -> list[Claim]:
    """Return the claims of running processes, and remove the others."""
    claims: list[Claim] = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".claim"):
            continue
        path = os.path.join(folder, name)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # released just now
        try:
            if _is_held(handle):
                claims += _read(handle)
            else:
                os.unlink(path)
        finally:
            os.close(handle)
    return claims


def _read(handle: int) -> list[Claim]:
    size = os.fstat(handle).st_size
    return [
        Claim(entry["node"], entry["room"], tuple(entry["gpus"]))
        for entry in json.loads(os.pread(handle, size, 0) or b"[]")
    ]


def _to_data(part: Claim) -> dict[str, object]:
    return {"node": part.node, "room": dict(part.room), "gpus": list(part.gpus)}


def _sweep(root: str) -> None:
    """Remove the folders of drivers that are gone."""
    for name in os.listdir(root):
        path = os.path.join(root, name)
        try:
            handle = os.open(os.path.join(path, "driver"), os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue  # it is being removed, or is the lock itself
        try:
            if not _is_held(handle):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(handle)


def _is_held(handle: int) -> bool:
    """Whether a running process holds the lock; if not, this one does until it closes the file."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    handle = _open(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

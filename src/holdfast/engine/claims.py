"""Claims of runs on what the trials of a study share, as files that die with their process.

    <folder>/driver        held by the driver of the study, so that a folder without one is litter
    <folder>/lock          held while claims are read and one is added
    <folder>/<name>.claim  one claim, held by the process that has made it

Locks are the kernel's (flock): a process that is killed gives back what it had claimed. Workers
that were forked from it keep its claim until they have ended as well.
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
    """The claims of one study, as its driver keeps them."""

    def __init__(self) -> None:
        root = private_folder(_FOLDER)
        with _locked(os.path.join(root, "lock")):  # so that none is swept that is being made
            _sweep(root)
            self.path = private_folder(_FOLDER, secrets.token_hex(8))
            self._handle = _opened(os.path.join(self.path, "driver"))
            fcntl.flock(self._handle, fcntl.LOCK_SH)

    def close(self) -> None:
        """Remove the folder; nobody may claim anything any more."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


class HeldClaim:
    """A claim of this process, which stands until it is released or the process ends."""

    def __init__(self, path: str, handle: int) -> None:
        self._path, self._handle = path, handle

    def release(self) -> None:
        """Give back what was claimed; once is enough."""
        if self._handle < 0:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        os.close(self._handle)
        self._handle = -1


def claim(
    folder: str, choose: Callable[[list[Claim]], Sequence[Claim] | None]
) -> tuple[Sequence[Claim], HeldClaim] | None:
    """Have `choose` say what to take, given the claims of all others; None if it says None."""
    with _locked(os.path.join(folder, "lock")):
        chosen = choose(_claims_in(folder))
        if chosen is None:
            return None
        path = os.path.join(folder, f"{secrets.token_hex(8)}.claim")
        handle = _opened(path)
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, json.dumps([_to_data(one) for one in chosen]).encode())
    return chosen, HeldClaim(path, handle)


def _claims_in(folder: str) -> list[Claim]:
    """Return the claims of processes that live, and remove the others."""
    found: list[Claim] = []
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
                found += _read(handle)
            else:
                os.unlink(path)
        finally:
            os.close(handle)
    return found


def _read(handle: int) -> list[Claim]:
    size = os.fstat(handle).st_size
    return [
        Claim(one["node"], one["room"], tuple(one["gpus"]))
        for one in json.loads(os.pread(handle, size, 0) or b"[]")
    ]


def _to_data(one: Claim) -> dict[str, object]:
    return {"node": one.node, "room": dict(one.room), "gpus": list(one.gpus)}


def _sweep(root: str) -> None:
    """Remove the folders of drivers that are gone."""
    for name in os.listdir(root):
        path = os.path.join(root, name)
        try:
            handle = os.open(os.path.join(path, "driver"), os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue  # it is being removed, or the lock itself
        try:
            if not _is_held(handle):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(handle)


def _is_held(handle: int) -> bool:
    """Whether a process holds a file, that lives; if not, this one does until it closes it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    handle = _opened(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _opened(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

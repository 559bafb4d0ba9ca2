"""One copy of a remote checkpoint per machine, shared by every process that asks for it.

    <cache>/<id>/         the copy; it has this name only when it is whole
    <cache>/<id>.part…/   one being made
    <cache>/<id>.lock     held while a copy is made or removed
    <cache>/<id>.users    held, shared, by every process that uses the copy, until it ends

Locks are the kernel's (flock), so whatever dies lets go of them. A copy lives as long as any
process that used it; the last one to end removes it, and whatever a killed process left behind is
removed by the next that fetches anything.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from holdfast.core.manifest import FileEntry
from holdfast.storage.private_folders import find_private_folder, make_private, private_folder

log = logging.getLogger(__name__)

POLL_S = 0.02
STALL_S = 60.0
_CACHE = "checkpoints"

_held: dict[str, int] = {}  # users file -> handle, kept open for the life of this process
_held_lock = threading.Lock()

Fill = Callable[[str], None]


def cache_root() -> Path:
    """Return where this machine keeps the copies of this user's checkpoints; nobody else's."""
    return Path(private_folder(_CACHE))


def fetch_once(
    identity: str,
    fill: Fill,
    files: Iterable[FileEntry],
    *,
    root: Path | None = None,
    stall_s: float = STALL_S,
) -> Path:
    """Return the folder of the machine's one copy of `identity`, made by `fill` if need be.

    Whoever comes first fills a private folder and gives it its name when it is whole; the others
    wait for that. If the one who fills dies, another takes over at once; if it makes no progress
    for `stall_s`, whoever waits makes the copy itself.
    """
    root = _own(root)
    sweep_unused(root)
    copy = root / identity
    _hold(root / f"{identity}.users")
    files = list(files)
    with _waited_for(root / f"{identity}.lock", _progress_of(root, identity), stall_s):
        if not _is_whole(copy, files):
            _make_copy(copy, fill)
    return copy


def hold(identity: str, root: Path | None = None) -> None:
    """Keep the copy of `identity` on this machine for as long as this process lives."""
    root = _own(root)
    _hold(root / f"{identity}.users")


def let_go(root: Path | None = None) -> None:
    """Give up every copy this process uses; those that nobody else uses are removed."""
    with _held_lock:
        handles, paths = list(_held.values()), list(_held)
        _held.clear()
    for handle in handles:
        os.close(handle)  # not LOCK_UN: that would also unlock a parent that forked this process
    for folder in {os.path.dirname(path) for path in paths} | ({str(root)} if root else set()):
        sweep_unused(Path(folder))


def sweep_unused(root: Path | None = None) -> None:
    """Remove the copies, and parts of copies, that no living process uses."""
    if root is None:
        usual = find_private_folder(_CACHE)
        if usual is None:
            return  # nothing was ever fetched
        root = Path(usual)
    with contextlib.suppress(FileNotFoundError):
        for users in sorted(root.glob("*.users")):
            _remove_if_unused(root, users.name.removesuffix(".users"))


def _remove_if_unused(root: Path, identity: str) -> None:
    users, lock = root / f"{identity}.users", root / f"{identity}.lock"
    with contextlib.ExitStack() as held:
        for path in (lock, users):
            handle = _locked_now(path)
            if handle is None:
                return  # in use
            held.callback(os.close, handle)
        with contextlib.suppress(FileNotFoundError):
            (root / identity).rename(_part_of(root / identity))
        for part in root.glob(f"{identity}.part-*"):
            shutil.rmtree(part, ignore_errors=True)
        users.unlink(missing_ok=True)
        lock.unlink(missing_ok=True)


def _part_of(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}.part-{secrets.token_hex(4)}")


def _make_copy(copy: Path, fill: Fill) -> None:
    """Fill a private folder, then give it its name; an unfit copy of that name makes way."""
    part = _part_of(copy)
    part.mkdir(mode=0o700)
    try:
        fill(str(part))
        if copy.exists():
            copy.rename(_part_of(copy))
        part.rename(copy)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _is_whole(copy: Path, files: Iterable[FileEntry]) -> bool:
    """Whether a copy is there and nobody, such as a cleaner of temporary files, has cut it."""
    if not copy.is_dir():
        return False
    for entry in files:
        try:
            if os.stat(copy / entry.path).st_size != entry.size:
                return False
        except FileNotFoundError:
            return False
    return True


# ---------------------------------------------------------------------- locks


def _hold(users: Path) -> None:
    with _held_lock:
        if str(users) in _held:
            return
        while True:
            handle = _opened(users)
            fcntl.flock(handle, fcntl.LOCK_SH)
            if _is_still_named(handle, users):
                break
            os.close(handle)  # removed by a sweep between opening and locking
        _held[str(users)] = handle


def _locked_now(path: Path) -> int | None:
    """Return a handle that holds an exclusive lock until it is closed; None if another has it."""
    handle = _opened(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    if not _is_still_named(handle, path):
        os.close(handle)  # removed by a sweep between opening and locking
        return None
    return handle


@contextlib.contextmanager
def _waited_for(path: Path, progress: Callable[[], object], stall_s: float) -> Iterator[None]:
    """Hold the lock, or go on without it once its holder has stopped making progress."""
    seen, since = progress(), time.monotonic()
    while (handle := _locked_now(path)) is None:
        now_seen = progress()
        if now_seen != seen:
            seen, since = now_seen, time.monotonic()
        if time.monotonic() - since > stall_s:
            log.warning("%s has made no progress for %.0f s; fetching without it", path, stall_s)
            break
        time.sleep(POLL_S)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _progress_of(root: Path, identity: str) -> Callable[[], object]:
    def progress() -> object:
        parts = root.glob(f"{identity}.part-*/**/*")
        return sum(_size(path) for path in parts)

    return progress


def _size(path: Path) -> int:
    try:
        return path.stat().st_blocks + 1
    except FileNotFoundError:
        return 0


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_still_named(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _own(root: Path | None) -> Path:
    if root is None:
        return cache_root()
    make_private(str(root))
    return root


atexit.register(let_go)

"""Fetches remote checkpoints: one copy per machine, shared by all its processes.

    <cache>/<id>/         the copy; it gets this name when it is complete
    <cache>/<id>.part…/   a copy being made
    <cache>/<id>.stamps   size, inode and change time of each file when the copy was complete
    <cache>/<id>.lock     held while a copy is made or removed
    <cache>/<id>.users    a shared lock, held by every process that uses the copy

Locks are the kernel's (flock), so they end with their process. A copy exists as long as any process
holds it; the last to release it removes it, and the next process that fetches anything removes what
a killed one left. A process releases a copy when it has left the last `with` that used it. Workers
keep their latest copies, up to a limit, because they may need them again. The driver of a run keeps
what its workers began with, for those that start again.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.checkpoint.manifest import FileEntry
from holdfast.storage.private_folders import find_private_folder, make_private, private_folder

log = logging.getLogger(__name__)

POLL_S = 0.02
TICK_S, TICKS_MAX = 0.001, 50  # more ticks are needed only if the clock was set back
STALL_S = 60.0
_CACHE = "checkpoints"

IDLE_BYTES_MAX = 50 << 30  # how much a worker keeps of copies that it does not use at the moment
IDLE_SHARE_MAX = 0.5  # and at most this share of the free space of the disk


@dataclass(slots=True)
class _Use:
    """How this process uses a copy.

    Attributes:
        handle: The users file, locked.
        inside: How many `with` blocks use it at the moment.
        pins: How many callers of `fetch_once` keep it until the process ends.
        size_bytes: Its size; known once it is idle.
    """

    handle: int
    inside: int = 0
    pins: int = 0
    size_bytes: int = 0


_uses: dict[str, _Use] = {}  # by users file; the last used comes last
_uses_lock = threading.Lock()
_uses_of = os.getpid()
_keeps_idle = False  # whether this is a worker

Fill = Callable[[str], None]


def cache_root() -> Path:
    """Return the folder for copies of checkpoints; each user has one."""
    return Path(private_folder(_CACHE))


def fetch_once(
    identity: str,
    fill: Fill,
    files: Iterable[FileEntry],
    *,
    root: Path | None = None,
    stall_s: float = STALL_S,
) -> Path:
    """Return the folder of the machine's copy of `identity`, made by `fill` if it is missing.

    It exists until this process ends. The first process fills a private folder and renames it when
    it is complete; the others wait. If it dies, another takes over at once; if it makes no progress
    for `stall_s`, each waiting process makes the copy itself.
    """
    with using_copy(identity, fill, files, root=root, stall_s=stall_s) as copy:
        with _uses_lock:
            _uses[str(_users_of(copy))].pins += 1
        return copy


@contextlib.contextmanager
def using_copy(
    identity: str,
    fill: Fill,
    files: Iterable[FileEntry],
    *,
    root: Path | None = None,
    stall_s: float = STALL_S,
) -> Iterator[Path]:
    """Provide the folder of the machine's copy of `identity` within the block; see `fetch_once`.

    At the end of the last such block the process releases the copy, unless it is a worker.
    """
    root = _own(root)
    copy = root / identity
    _enter(_users_of(copy))
    try:
        sweep_unused(root)
        files = list(files)
        with _waited_for(root / f"{identity}.lock", _progress_of(root, identity), stall_s):
            if not _is_whole(copy, files):
                _make_copy(copy, fill, files)
        yield copy
    finally:
        _leave(copy)


def keep_idle_copies() -> None:
    """Make this process keep idle copies, within the limits above."""
    global _keeps_idle  # noqa: PLW0603  # a property of the process
    _keeps_idle = True


class CopyKeeper:
    """Keeps the machine's copy of one checkpoint at a time while no process uses it.

    The copies of a lost attempt end with its workers; those of the next attempt find this one.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._copy: Path | None = None

    def keep(self, identity: str) -> None:
        """Keep the copy of this checkpoint instead of the previous one."""
        copy = _own(self._root) / identity
        if copy == self._copy:
            return
        _enter(_users_of(copy))
        self.close()
        self._copy = copy

    def close(self) -> None:
        """Release the copy."""
        copy, self._copy = self._copy, None
        if copy is not None:
            _leave(copy, keeps_idle=False)


def let_go(root: Path | None = None) -> None:
    """Release every copy this process uses, and remove those without other users."""
    with _uses_lock:
        _forget_parent()
        uses, paths = list(_uses.values()), list(_uses)
        _uses.clear()
    for use in uses:
        os.close(use.handle)  # not LOCK_UN: a forked child may still read it
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
    with contextlib.ExitStack() as locks:
        for path in (lock, users):
            handle = _locked_now(path)
            if handle is None:
                return  # in use
            locks.callback(os.close, handle)
        with contextlib.suppress(FileNotFoundError):
            (root / identity).rename(_part_of(root / identity))
        for part in root.glob(f"{identity}.part-*"):
            shutil.rmtree(part, ignore_errors=True)
        _stamps_at(root / identity).unlink(missing_ok=True)
        users.unlink(missing_ok=True)
        lock.unlink(missing_ok=True)


def _part_of(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}.part-{secrets.token_hex(4)}")


def _make_copy(copy: Path, fill: Fill, files: Iterable[FileEntry]) -> None:
    """Fill a private folder, then rename it; a damaged copy of that name is replaced."""
    part = _part_of(copy)
    part.mkdir(mode=0o700)
    try:
        fill(str(part))
        _write_stamps(_stamps_at(copy), _stamps_of(part, files))
        if copy.exists():
            copy.rename(_part_of(copy))
        part.rename(copy)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _is_whole(copy: Path, files: Iterable[FileEntry]) -> bool:
    """Whether a copy is as it was fetched.

    A cleaner of temporary files may have removed files, or a function may have saved into the
    folder it loads from. The kernel's change time shows any such change, and cannot be faked.
    """
    try:
        stamps = json.loads(_stamps_at(copy).read_bytes())
        return bool(stamps == _stamps_of(copy, files)) and copy.is_dir()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def _stamps_at(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}.stamps")


def _write_stamps(path: Path, stamps: Mapping[str, Sequence[int]]) -> None:
    """Store the stamps, and return once a later change of a file would get a later time.

    The kernel's clock for files advances in ticks of some milliseconds.
    """
    newest = max((changed for *_, changed in stamps.values()), default=0)
    for _ in range(TICKS_MAX):
        path.write_text(json.dumps(stamps))
        if path.stat().st_ctime_ns > newest:
            return
        time.sleep(TICK_S)


def _stamps_of(folder: Path, files: Iterable[FileEntry]) -> dict[str, list[int]]:
    stamps = {}
    for entry in files:
        info = os.stat(folder / entry.path)
        stamps[entry.path] = [info.st_size, info.st_ino, info.st_ctime_ns]
    return stamps


# ---------------------------------------------------------------------- locks


def _forget_parent() -> None:
    """In a forked process, drop the parent's uses.

    Its handles may be open here, and then keep the copies until this process ends; or they were
    closed after the fork, and their numbers may belong to other files.
    """
    global _uses_of  # noqa: PLW0603
    if _uses_of != os.getpid():
        _uses.clear()
        _uses_of = os.getpid()


def _users_of(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}.users")


def _enter(users: Path) -> None:
    """Note one more use of a copy in this process; other processes cannot remove it now."""
    with _uses_lock:
        _forget_parent()
        use = _uses.pop(str(users), None) or _Use(_shared_lock(users))
        use.inside += 1
        _uses[str(users)] = use  # moved to the end


def _leave(copy: Path, *, keeps_idle: bool | None = None) -> None:
    """Note the end of one use of a copy, and remove copies that need not stay.

    A failure to remove one is logged, so that it does not hide an error of the caller.
    """
    keeps = _keeps_idle if keeps_idle is None else keeps_idle
    size_bytes = _tree_bytes(copy) if keeps else 0
    gone: list[Path] = []
    with _uses_lock:
        _forget_parent()
        use = _uses.get(str(_users_of(copy)))
        if use is None:
            return  # `let_go` was called meanwhile
        use.inside -= 1
        use.size_bytes = size_bytes
        idle = {path: use for path, use in _uses.items() if not use.inside and not use.pins}
        for path in _beyond_limit(copy.parent, idle) if keeps else [str(_users_of(copy))]:
            if path in idle:
                os.close(_uses.pop(path).handle)
                gone.append(Path(path))
    for users in gone:
        try:
            _remove_if_unused(users.parent, users.name.removesuffix(".users"))
        except OSError as error:
            log.warning("could not remove an unused copy of a checkpoint: %s", error)


def _beyond_limit(root: Path, idle: Mapping[str, _Use]) -> list[str]:
    """Return the idle copies that a worker must release, the oldest first."""
    total = sum(use.size_bytes for use in idle.values())
    room = shutil.disk_usage(root).free + total
    limit = min(IDLE_BYTES_MAX, room * IDLE_SHARE_MAX)
    paths = []
    for path, use in idle.items():
        if total <= limit:
            break
        paths.append(path)
        total -= use.size_bytes
    return paths


def _tree_bytes(copy: Path) -> int:
    total = 0
    for folder, _, names in os.walk(copy):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _shared_lock(users: Path) -> int:
    """Return a handle that, while it is open, marks this process as a user of a copy."""
    while True:
        handle = _opened(users)
        fcntl.flock(handle, fcntl.LOCK_SH)
        if _is_still_named(handle, users):
            return handle
        os.close(handle)  # removed by a sweep between opening and locking


def _locked_now(path: Path) -> int | None:
    """Return a handle with an exclusive lock, held until it is closed; None if it is taken."""
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
    """Hold the lock, or go on without it if its holder makes no progress."""
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
        # A walk passes over folders that vanish meanwhile: a copy that is complete is renamed.
        return sum(
            _size(os.path.join(folder, name))
            for part in root.glob(f"{identity}.part-*")
            for folder, folders, files in os.walk(part)
            for name in (*folders, *files)
        )

    return progress


def _size(path: str) -> int:
    try:
        return os.stat(path).st_blocks + 1
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

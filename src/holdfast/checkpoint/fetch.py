"""One copy of a remote checkpoint per machine, shared by every process that asks for it.

    <cache>/<id>/         the copy; it has this name only when it is whole
    <cache>/<id>.part…/   one being made
    <cache>/<id>.stamps   what the kernel said of each file when the copy was whole
    <cache>/<id>.lock     held while a copy is made or removed
    <cache>/<id>.users    held, shared, by every process that uses the copy, until it lets go

Locks are the kernel's (flock), so whatever dies lets go of them. A copy lives as long as any
process holds it; the last one to let go removes it, and whatever a killed process left behind is
removed by the next that fetches anything. A process lets go when it has left the last `with` in
which it used the copy. A worker does not: it keeps what it may want again, the latest of it, up to
a limit, and the driver of a run keeps what its workers began with, for those that start again.
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
TICK_S, TICKS_MAX = 0.001, 50  # more only if the clock was set back
STALL_S = 60.0
_CACHE = "checkpoints"

IDLE_BYTES_MAX = 50 << 30  # what a worker keeps that it does not use just then, and never more
IDLE_SHARE_MAX = 0.5  # than this part of the room that the disk has besides


@dataclass(slots=True)
class _Use:
    """What this process has to do with a copy.

    Attributes:
        handle: Of the users file, locked.
        inside: How many are using it just now.
        pins: How many keep it though nobody uses it; what `fetch_once` returned stays for good.
        size_bytes: How large it is; known once nobody uses it.
    """

    handle: int
    inside: int = 0
    pins: int = 0
    size_bytes: int = 0


_uses: dict[str, _Use] = {}  # by users file; those that were used last come last
_uses_lock = threading.Lock()
_uses_of = os.getpid()
_keeps_idle = False  # whether this is a worker

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

    It stays for as long as this process lives. Whoever comes first fills a private folder and gives
    it its name when it is whole; the others wait for that. If the one who fills dies, another takes
    over at once; if it makes no progress for `stall_s`, whoever waits makes the copy itself.
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
    """Give the folder of the machine's one copy of `identity` for a while; see `fetch_once`.

    When nobody in this process is inside any more, it lets go of the copy, unless it is a worker.
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
    """Have this process keep copies that it used, as far as there is room for them."""
    global _keeps_idle  # noqa: PLW0603  # it is what kind of process this is
    _keeps_idle = True


class CopyKeeper:
    """Keeps the machine's copy of one checkpoint at a time, if there is one, while nobody uses it.

    The workers of an attempt that was lost took their copies along; those of the next find this.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._kept: Path | None = None

    def keep(self, identity: str) -> None:
        """Keep the copy of this checkpoint from now on, and none of another."""
        copy = _own(self._root) / identity
        if copy == self._kept:
            return
        _enter(_users_of(copy))
        self.close()
        self._kept = copy

    def close(self) -> None:
        """Keep nothing any more."""
        kept, self._kept = self._kept, None
        if kept is not None:
            _leave(kept, keeps_idle=False)


def let_go(root: Path | None = None) -> None:
    """Give up every copy this process uses; those that nobody else uses are removed."""
    with _uses_lock:
        _forget_parent()
        uses, paths = list(_uses.values()), list(_uses)
        _uses.clear()
    for use in uses:
        os.close(use.handle)  # not LOCK_UN: a child that was forked meanwhile may still read it
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
        _stamps_at(root / identity).unlink(missing_ok=True)
        users.unlink(missing_ok=True)
        lock.unlink(missing_ok=True)


def _part_of(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}.part-{secrets.token_hex(4)}")


def _make_copy(copy: Path, fill: Fill, files: Iterable[FileEntry]) -> None:
    """Fill a private folder, then give it its name; an unfit copy of that name makes way."""
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
    """Whether a copy is as it was fetched: nobody has cut it, replaced a file or written to one.

    A cleaner of temporary files may have, or a function that saves into the folder it loads from.
    Whatever is done to a file, the kernel notes when, and nobody can say otherwise.
    """
    try:
        stamps = json.loads(_stamps_at(copy).read_bytes())
        return bool(stamps == _stamps_of(copy, files)) and copy.is_dir()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def _stamps_at(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}.stamps")


def _write_stamps(path: Path, stamps: Mapping[str, Sequence[int]]) -> None:
    """Keep what the kernel says of files, once whatever is done to one of them gets a later time.

    Its clock for files goes in ticks of some milliseconds.
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
        found = os.stat(folder / entry.path)
        stamps[entry.path] = [found.st_size, found.st_ino, found.st_ctime_ns]
    return stamps


# ---------------------------------------------------------------------- locks


def _forget_parent() -> None:
    """In a process that was forked, know nothing of what its parent uses.

    Its handles may be open here, and then they keep the copies until this process ends; or closed
    by whoever forked it, and belong to something else by now.
    """
    global _uses_of  # noqa: PLW0603
    if _uses_of != os.getpid():
        _uses.clear()
        _uses_of = os.getpid()


def _users_of(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}.users")


def _enter(users: Path) -> None:
    """Take in that one more in this process uses a copy, which others must not remove from now."""
    with _uses_lock:
        _forget_parent()
        use = _uses.pop(str(users), None) or _Use(_shared_lock(users))
        use.inside += 1
        _uses[str(users)] = use  # as the last one


def _leave(copy: Path, *, keeps_idle: bool | None = None) -> None:
    """Take in that one in this process does not use a copy any more, and remove what need not stay.

    That it cannot be removed is said, and hides nothing that is raised just then.
    """
    keeps = _keeps_idle if keeps_idle is None else keeps_idle
    size_bytes = _tree_bytes(copy) if keeps else 0
    gone: list[Path] = []
    with _uses_lock:
        _forget_parent()
        use = _uses.get(str(_users_of(copy)))
        if use is None:
            return  # all was let go meanwhile
        use.inside -= 1
        use.size_bytes = size_bytes
        idle = {path: one for path, one in _uses.items() if not one.inside and not one.pins}
        for path in _too_much(copy.parent, idle) if keeps else [str(_users_of(copy))]:
            if path in idle:
                os.close(_uses.pop(path).handle)
                gone.append(Path(path))
    for users in gone:
        try:
            _remove_if_unused(users.parent, users.name.removesuffix(".users"))
        except OSError as error:
            log.warning("a copy that nobody uses could not be removed: %s", error)


def _too_much(root: Path, idle: Mapping[str, _Use]) -> list[str]:
    """Return which of the copies that a worker does not use it cannot keep, the oldest first."""
    total = sum(one.size_bytes for one in idle.values())
    room = shutil.disk_usage(root).free + total
    limit = min(IDLE_BYTES_MAX, room * IDLE_SHARE_MAX)
    found = []
    for path, one in idle.items():
        if total <= limit:
            break
        found.append(path)
        total -= one.size_bytes
    return found


def _tree_bytes(copy: Path) -> int:
    found = 0
    for folder, _, names in os.walk(copy):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found += os.lstat(os.path.join(folder, name)).st_size
    return found


def _shared_lock(users: Path) -> int:
    """Return a handle that says, until it is closed, that this process uses a copy."""
    while True:
        handle = _opened(users)
        fcntl.flock(handle, fcntl.LOCK_SH)
        if _is_still_named(handle, users):
            return handle
        os.close(handle)  # removed by a sweep between opening and locking


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

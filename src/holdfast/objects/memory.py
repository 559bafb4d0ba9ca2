"""Memory that other processes can open for as long as one process holds it.

On Linux it is a file that has no name, in memory: others open it as `/proc/<owner>/fd/<n>`, and it
is gone with its owner, even one that was killed. It is sealed: nobody can write to it any more, so
nobody who reads it can be surprised. Its label says whose it is, so that an owner's number that
was given to another process, or to another file, is noticed. Elsewhere it is a temporary file,
and what an owner that was killed leaves behind is removed by the next process that makes one.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import weakref
from collections.abc import Iterator

from holdfast.exceptions import ObjectLostError


class ObjectLost(ObjectLostError):
    """The object of a reference is not there any more, or not for this process."""

    code = "HF800"


_LABEL = "holdfast-object-"
_READ = os.O_RDONLY | os.O_CLOEXEC
# Should the number belong to something else by now, opening it must not wait nor take a terminal.
_READ_CAREFULLY = _READ | os.O_NONBLOCK | os.O_NOCTTY
_GONE = (errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ELOOP)


class Memory:
    """An open file of an object; closed when this is garbage, and not in a fork of its process.

    Attributes:
        address: Where other processes open it.
    """

    def __init__(self, handle: int, address: str, *, is_owner: bool) -> None:
        self.handle, self.address = handle, address
        kept = address if is_owner and not address.startswith("/proc/") else None
        self._release = weakref.finalize(self, _release, os.getpid(), handle, kept)
        self._release.atexit = kept is not None

    def forget(self) -> None:
        """Let go of it in a fork: the memory is to end with the process that made it."""
        if self._release.detach() is not None:
            os.close(self.handle)

    def seal(self) -> None:
        """Have the system refuse every further change, whoever tries."""
        if not self.address.startswith("/proc/"):
            os.fchmod(self.handle, 0o400)
            return
        import fcntl

        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.handle, fcntl.F_ADD_SEALS, seals)

    def to_read(self) -> mmap.mmap:
        """Return all of it, for reading."""
        return mmap.mmap(self.handle, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)

    def to_change(self, offset: int) -> mmap.mmap:
        """Return it from `offset` on; pages that are written to become this process's own."""
        length = os.fstat(self.handle).st_size - offset
        rights = mmap.PROT_READ | mmap.PROT_WRITE
        return mmap.mmap(self.handle, length, mmap.MAP_PRIVATE, rights, offset=offset)


def new_memory(token: str) -> Memory:
    """Return new memory that this process owns, empty yet; `token` is its own."""
    if hasattr(os, "memfd_create"):
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        handle = os.memfd_create(f"{_LABEL}{token}", flags)
        return Memory(handle, f"/proc/{os.getpid()}/fd/{handle}", is_owner=True)
    # Only here: it takes longer to load than all the rest.
    from holdfast.storage.private_folders import private_folder

    folder = private_folder("objects")
    _sweep(folder)
    path = os.path.join(folder, f"{os.getpid()}-{token}")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return Memory(handle, path, is_owner=True)


def open_memory(address: str, token: str) -> Memory:
    """Return the memory of another process.

    Raises:
        ObjectLost: It is not there; the caller knows more about its owner.
    """
    if not address.startswith("/proc/"):
        with _lost_if_gone(address):
            return Memory(os.open(address, _READ), address, is_owner=False)
    with _lost_if_gone(address):
        _must_be(token, address)
        memory = Memory(os.open(address, _READ_CAREFULLY), address, is_owner=False)
        # Again, of what was really opened: the owner may have gone, or let go, in between.
        _must_be(token, f"/proc/self/fd/{memory.handle}")
        return memory


@contextlib.contextmanager
def _lost_if_gone(address: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _GONE:
            raise  # too many open files, say: the object is there
        raise ObjectLost(f"{address}: {error.strerror}") from error


def _must_be(token: str, address: str) -> None:
    if not os.readlink(address).startswith(f"/memfd:{_LABEL}{token}"):
        raise ObjectLost(f"{address} is something else by now")


def _release(pid: int, handle: int, path: str | None) -> None:
    if os.getpid() != pid:
        return  # a fork without our knowledge: numbers and names may be others' by now
    os.close(handle)
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _sweep(folder: str) -> None:
    """Remove what owners that were killed have left."""
    for name in os.listdir(folder):
        pid = name.partition("-")[0]
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))
        except (PermissionError, ValueError):
            continue

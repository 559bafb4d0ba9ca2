"""Memory that other processes can open for as long as one process holds it.

On Linux it is an anonymous file in memory: others open it as `/proc/<owner>/fd/<n>`, and it is gone
with its owner, even one that was killed. It is sealed, so it cannot change under its readers. Its
label holds the object's token, so that a reused process id or file descriptor is noticed. On other
systems it is a temporary file; what a killed owner leaves is removed by the next process that
creates one.
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
    """The object of a reference is gone, or cannot be reached by this process."""

    code = "HF800"


_LABEL = "holdfast-object-"
_READ = os.O_RDONLY | os.O_CLOEXEC
# The descriptor may refer to something else by now: do not block, nor acquire a terminal.
_READ_CAREFULLY = _READ | os.O_NONBLOCK | os.O_NOCTTY
_GONE = (errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ELOOP)


class Memory:
    """An open file of an object; closed when this is garbage, except in a fork of its process.

    Attributes:
        address: Where other processes open it.
    """

    def __init__(self, handle: int, address: str, *, is_owner: bool) -> None:
        self.handle, self.address = handle, address
        path = address if is_owner and not address.startswith("/proc/") else None
        self._release = weakref.finalize(self, _release, os.getpid(), handle, path)
        self._release.atexit = path is not None

    def forget(self) -> None:
        """Close it in a fork: the memory must end with the process that created it."""
        if self._release.detach() is not None:
            os.close(self.handle)

    def seal(self) -> None:
        """Make the kernel refuse any further change, by any process."""
        if not self.address.startswith("/proc/"):
            os.fchmod(self.handle, 0o400)
            return
        import fcntl

        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.handle, fcntl.F_ADD_SEALS, seals)

    def to_read(self) -> mmap.mmap:
        """Return a read-only mapping of all of it."""
        return mmap.mmap(self.handle, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)

    def to_change(self, offset: int) -> mmap.mmap:
        """Return a mapping from `offset` on; written pages become private to this process."""
        length = os.fstat(self.handle).st_size - offset
        rights = mmap.PROT_READ | mmap.PROT_WRITE
        return mmap.mmap(self.handle, length, mmap.MAP_PRIVATE, rights, offset=offset)


def new_memory(token: str) -> Memory:
    """Return new, empty memory that this process owns, labelled with `token`."""
    if hasattr(os, "memfd_create"):
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        handle = os.memfd_create(f"{_LABEL}{token}", flags)
        return Memory(handle, f"/proc/{os.getpid()}/fd/{handle}", is_owner=True)
    # Imported here, because it takes longer to load than all the rest.
    from holdfast.storage.private_folders import private_folder

    folder = private_folder("objects")
    _sweep(folder)
    path = os.path.join(folder, f"{os.getpid()}-{token}")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return Memory(handle, path, is_owner=True)


def open_memory(address: str, token: str) -> Memory:
    """Return the memory of another process.

    Raises:
        ObjectLost: It is gone; the caller adds what is known about the owner.
    """
    if not address.startswith("/proc/"):
        with _lost_if_gone(address):
            return Memory(os.open(address, _READ), address, is_owner=False)
    with _lost_if_gone(address):
        _must_be(token, address)
        memory = Memory(os.open(address, _READ_CAREFULLY), address, is_owner=False)
        # Check again what was really opened: the owner may have ended or closed it meanwhile.
        _must_be(token, f"/proc/self/fd/{memory.handle}")
        return memory


@contextlib.contextmanager
def _lost_if_gone(address: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _GONE:
            raise  # for example too many open files: the object exists
        raise ObjectLost(f"{address}: {error.strerror}") from error


def _must_be(token: str, address: str) -> None:
    if not os.readlink(address).startswith(f"/memfd:{_LABEL}{token}"):
        raise ObjectLost(f"{address} is another file by now")


def _release(pid: int, handle: int, path: str | None) -> None:
    if os.getpid() != pid:
        return  # a fork: handle and path may belong to others by now
    os.close(handle)
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _sweep(folder: str) -> None:
    """Remove the files of killed owners."""
    for name in os.listdir(folder):
        pid = name.partition("-")[0]
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))
        except (PermissionError, ValueError):
            continue

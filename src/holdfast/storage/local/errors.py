"""Turns an `OSError` into a store error with a hint."""

from __future__ import annotations

import errno
import sys

from holdfast.errors import ObjectMissing, StoreBusy, StoreDenied, StoreError, StoreFull

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_PASSING = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EINTR,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ESTALE,
    errno.ETIMEDOUT,
}
# Retried only for reads: after a failed sync, the data may be lost.
_LOOKS = {"read", "look at", "list", "reach"}
_PASSING_LOOK = {
    errno.EIO: "check the disk or the mount, then give the same command again; move away files that"
    " the disk has lost for good, and they count as missing",
    errno.EMFILE: "allow this process more open files: ulimit -n",
    errno.ENFILE: "this machine cannot open more files: end processes that hold many",
    errno.ENOMEM: "this machine has no memory left: end processes that hold much",
}


class explained:  # noqa: N801  # used like a function; a class, because it is cheaper
    """Turns an `OSError` into a store error that names the path and what to do."""

    __slots__ = ("_key", "_path", "_verb")

    def __init__(self, verb: str, path: str, key: str | None) -> None:
        self._verb, self._path, self._key = verb, path, key

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        is_null = type(error) is ValueError and "null" in str(error)
        if isinstance(error, UnicodeEncodeError) or is_null:
            raise unnamable(self._path, self._key) from error
        if isinstance(error, OSError):
            raise store_error(error, self._verb, self._path, self._key) from error


def unnamable(path: str, key: str | None = None) -> StoreError:
    """Return the error for a path that no file on this machine can have."""
    return StoreError(
        f"{path!a} cannot be the name of a file here: it contains a NUL, or characters that this"
        f" process cannot encode as {sys.getfilesystemencoding()}",
        key=key,
        hint="use another name, or another locale: LC_ALL=C.UTF-8",
    )


def store_error(error: OSError, verb: str, path: str, key: str | None) -> StoreError:
    """Return the store error for a failed file operation."""
    reason = error.strerror or type(error).__name__
    message = f"cannot {verb} {path}: {reason}"
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR | errno.EISDIR | errno.ELOOP if verb == "read":
            return ObjectMissing(message, key=key)
        case code if code in _FULL:
            return StoreFull(
                message, key=key, hint="free some space, then give the same command again"
            )
        case code if code in _DENIED:
            return StoreDenied(
                message, key=key, hint="check who owns the folder and whether it is writable"
            )
        case code if code in _PASSING:
            return StoreBusy(message, key=key)
        case int() as code if verb in _LOOKS and code in _PASSING_LOOK:
            return StoreBusy(message, key=key, hint=_PASSING_LOOK[code])
        case errno.ENOTDIR:
            return StoreError(
                message, key=key, hint="a part of the path is a file; name a folder instead"
            )
        case errno.ENAMETOOLONG:
            return StoreError(message, key=key, hint="use a shorter name")
        case _:
            return StoreError(message, key=key)

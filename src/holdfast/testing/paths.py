"""Splits and checks paths of a simulated disk as the kernel does, with the kernel's errors."""

from __future__ import annotations

import errno
import os
from functools import lru_cache

NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 4095


@lru_cache(maxsize=1 << 14)
def names_of(path: str) -> tuple[str, ...]:
    """Return the names a path is made of."""
    if "\0" in path:
        raise ValueError("embedded null byte")  # as the os module does
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if not path.startswith("/") or ".." in names:
        raise ValueError(f"{path!r}: a simulated disk takes only absolute paths without '..'")
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise error_at(errno.ENAMETOOLONG, path)
    return names


def steps_to(path: str) -> list[str]:
    """Return every path on the way to `path`, outermost first, with itself last."""
    names = names_of(path)
    return ["/" + "/".join(names[:count]) for count in range(1, len(names) + 1)]


def check_length(name: str, path: str) -> None:
    """Raise if a name in `path` is longer than a file system allows."""
    # A character takes at most four bytes, so most names need not be encoded.
    if len(name) > NAME_BYTES_MAX // 4 and len(os.fsencode(name)) > NAME_BYTES_MAX:
        raise error_at(errno.ENAMETOOLONG, path)


def error_at(code: int, path: str, new: str | None = None) -> OSError:
    """Return the error the kernel would raise, of the class that belongs to its number."""
    return OSError(code, os.strerror(code), path, None, new)

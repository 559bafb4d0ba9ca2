"""Reads log files of workers on this machine while they grow, and cuts those that are too large.

A file that is too large loses its middle while its worker goes on writing. The worker and all its
descendants have it open, so it can be neither replaced nor moved; and copying it before cutting
would lose lines written in between. The kernel can remove a part of a file that others append to:
on most disks completely, on others by leaving a hole.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

MARK = b"\n\xe2\x80\xa6 cut out here, to make room \xe2\x80\xa6\n"
_KEEP_SIZE, _PUNCH_HOLE, _COLLAPSE_RANGE = 1, 2, 8


class LogFile:
    """A `WorkerLog` in a file of this machine, which need not exist yet."""

    def __init__(self, path: str) -> None:
        self.where = path
        self._handle: int | None = None

    def size_bytes(self) -> int:
        if self._handle is None:
            with contextlib.suppress(OSError):  # it does not exist yet
                self._handle = os.open(self.where, os.O_RDONLY | os.O_CLOEXEC)
        return 0 if self._handle is None else os.fstat(self._handle).st_size

    def read(self, from_byte: int, bytes_max: int) -> bytes:
        if self.size_bytes() <= from_byte or self._handle is None:
            return b""
        return os.pread(self._handle, bytes_max, from_byte)

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def used_bytes(path: str) -> int:
    """Return how much disk space a file takes, 0 if it does not exist."""
    try:
        return os.stat(path).st_blocks * 512
    except FileNotFoundError:
        return 0


def cut_middle(path: str, head_bytes: int, tail_bytes: int) -> bool:
    """Remove the middle of a file, leaving about so much of both ends; return whether it worked.

    The lines next to the cut may lose a part, and a mark is put there. What is appended meanwhile
    is never lost.
    """
    if sys.platform != "linux":
        return False
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        facts = os.fstat(handle)
        block = facts.st_blksize
        start = max(1, head_bytes // block) * block
        end = (facts.st_size - tail_bytes) // block * block
        if end <= start:
            return False
        size = end - start
        if not (
            _fallocate(handle, _COLLAPSE_RANGE, start, size)
            or _fallocate(handle, _PUNCH_HOLE | _KEEP_SIZE, start, size)
        ):
            return False
        os.pwrite(handle, MARK, start - len(MARK))
    finally:
        os.close(handle)
    return True


def _fallocate(handle: int, mode: int, start: int, size: int) -> bool:
    call = ctypes.CDLL(None, use_errno=True).fallocate
    return int(call(handle, mode, ctypes.c_int64(start), ctypes.c_int64(size))) == 0

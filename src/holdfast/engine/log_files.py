"""Logs that have become too large lose their middle, while workers go on writing to their ends.

A log is open in a worker and in all that it has started, so it can be neither replaced nor moved;
and what is copied away and then cut off loses the lines that come in between. The kernel can take
a part out of a file that others add to, on most disks without a trace, on others as a hole.
"""

from __future__ import annotations

import ctypes
import os
import sys

MARK = b"\n\xe2\x80\xa6 cut out here, to make room \xe2\x80\xa6\n"
_KEEP_SIZE, _PUNCH_HOLE, _COLLAPSE_RANGE = 1, 2, 8


def used_bytes(path: str) -> int:
    """Return what a file takes on disk, 0 if it is not there."""
    try:
        return os.stat(path).st_blocks * 512
    except FileNotFoundError:
        return 0


def cut_middle(path: str, head_bytes: int, tail_bytes: int) -> bool:
    """Leave of a file about so much of its beginning and its end; return whether that could be.

    It may lose a part of the lines next to the cut, where a mark says so. It never loses what is
    written to its end meanwhile.
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

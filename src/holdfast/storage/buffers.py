"""Read buffers that begin on a page and are used again.

The kernel copies to an address that is not a multiple of 32 at less than half the speed, and a
`bytearray` never is. A new buffer is also zeroed and given to the process page by page as it is
touched, which for a small file takes as long as reading it.
"""

from __future__ import annotations

import mmap
from collections import deque

BUFFER_BYTES = 1 << 20  # small enough to stay in the processor's cache
_SPARE_MAX = 16

_spare: deque[memoryview] = deque(maxlen=_SPARE_MAX)  # its methods are safe to call from threads


def borrow() -> memoryview:
    """Return a buffer of `BUFFER_BYTES`; what is in it is left over from its last use."""
    try:
        return _spare.pop()
    except IndexError:
        # Private: a process forked from this one must not read into the same memory.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        return memoryview(mmap.mmap(-1, BUFFER_BYTES, flags=private))


def give_back(buffer: memoryview) -> None:
    """Let somebody else use the buffer; one that is never given back is no loss."""
    _spare.append(buffer)

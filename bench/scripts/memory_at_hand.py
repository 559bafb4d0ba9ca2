"""Puts every save on the same footing: a disk with nothing left to do, and memory at hand.

A virtual machine may give free memory back to its host; the first write to a page that it must ask
for again takes ten times longer. So just before, as much as a save can fill is asked for and freed.
"""

from __future__ import annotations

import mmap
import os

COPIES = 3  # of what is saved: the file that the user writes, the one that is kept, and some


def settle(size: int) -> None:
    """Return when the disk is done and the kernel has memory for some copies of `size` bytes."""
    os.sync()
    with mmap.mmap(-1, COPIES * size) as memory:
        for start in range(0, len(memory), mmap.PAGESIZE):
            memory[start] = 1

"""Counts how often the processes of a run sync, so that the disk's own share can be measured."""

from __future__ import annotations

import mmap
import os
import stat
import struct

KINDS = ("file", "folder", "data")  # fsync of a file, fsync of a folder, fdatasync
_COUNTERS = struct.Struct(f"{len(KINDS)}q")
_fsync, _fdatasync = os.fsync, os.fdatasync
_slots: mmap.mmap | None = None


def count_in(folder: str) -> None:
    """From now on, count the syncs of this process in a file below `folder`."""
    global _slots  # noqa: PLW0603  # one process, one file
    os.makedirs(f"{folder}/syncs", exist_ok=True)
    with open(f"{folder}/syncs/{os.getpid()}", "w+b") as file:
        file.truncate(_COUNTERS.size)
        _slots = mmap.mmap(file.fileno(), _COUNTERS.size)
    os.fsync, os.fdatasync = _counted_fsync, _counted_fdatasync  # type: ignore[assignment]


def counts(folder: str) -> dict[str, int]:
    """Return what all processes have counted so far."""
    total = [0] * len(KINDS)
    for name in os.listdir(f"{folder}/syncs"):
        with open(f"{folder}/syncs/{name}", "rb") as file:
            total = list(map(sum, zip(total, _COUNTERS.unpack(file.read()), strict=True)))
    return dict(zip(KINDS, total, strict=True))


def _counted_fsync(handle: int) -> None:
    _add("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
    _fsync(handle)


def _counted_fdatasync(handle: int) -> None:
    _add("data")
    _fdatasync(handle)


def _add(kind: str) -> None:
    assert _slots is not None
    index = 8 * KINDS.index(kind)
    [count] = struct.unpack_from("q", _slots, index)  # threads may lose one; nobody minds
    struct.pack_into("q", _slots, index, count + 1)

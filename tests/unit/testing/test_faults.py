"""Injected faults: power cuts, dropped syncs, failing operations."""

from __future__ import annotations

import errno
from itertools import count
from pathlib import Path

import pytest

from holdfast.storage.local.disk import Disk, PosixDisk
from holdfast.testing.crashes import crash_states
from holdfast.testing.disk import SimDisk
from holdfast.testing.faults import Drop, Fail, Fuse, PowerCut, TappedDisk


def replace(disk: Disk, folder: str) -> None:
    """Make eight steps, of every kind that replacing a file takes and some more."""
    disk.mkdir(f"{folder}/d")
    handle = disk.create(f"{folder}/d/t")
    disk.write(handle, b"12345678")
    disk.truncate(handle, 6)
    disk.sync(handle)
    disk.close(handle)
    disk.link(f"{folder}/d/t", f"{folder}/d/l")
    disk.rename(f"{folder}/d/t", f"{folder}/d/f")
    disk.sync_dir(f"{folder}/d")


def test_a_fuse_cuts_at_each_step_in_turn_and_for_good() -> None:
    logs = []
    for moment in count(1):
        disk = SimDisk("/s")
        fused = TappedDisk(disk, Fuse(moment))
        try:
            replace(fused, "/s")
            break
        except PowerCut:
            with pytest.raises(PowerCut):
                fused.mkdir("/s/later")
        logs.append(len(disk.log))

    assert logs == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_power_cut_passes_through_every_handler_of_exceptions() -> None:
    assert not issubclass(PowerCut, Exception)


@pytest.mark.parametrize("nth", range(1, 9))
def test_each_step_can_fail_once(nth: int) -> None:
    disk, fail = SimDisk("/s"), Fail(errno.EACCES, nth=nth)
    tapped = TappedDisk(disk, fail)
    with pytest.raises(PermissionError) as caught:
        replace(tapped, "/s")
    tapped.mkdir("/s/later")

    assert len(disk.log) == nth
    assert caught.value.filename == fail.failed[0].path


def test_a_lasting_failure_lasts() -> None:
    disk = SimDisk("/s")
    tapped = TappedDisk(disk, Fail(errno.EIO, nth=2, lasting=True))
    tapped.mkdir("/s/a")
    for name in "bc":
        with pytest.raises(OSError, match="Input/output error"):
            tapped.mkdir(f"/s/{name}")

    assert disk.tree() == {"/s": None, "/s/a": None}


def test_a_full_disk_takes_a_part_and_can_be_emptied() -> None:
    disk = SimDisk("/s")
    tapped = TappedDisk(disk, Fail(errno.ENOSPC, match="write *", lasting=True, part=0.5))
    with pytest.raises(OSError, match="No space left"):
        replace(tapped, "/s")

    assert disk.tree()["/s/d/t"] == b"1234"
    tapped.remove("/s/d/t")
    assert disk.tree() == {"/s": None, "/s/d": None}


def test_a_sync_after_one_that_failed_makes_nothing_durable() -> None:
    disk = SimDisk("/s")
    tapped = TappedDisk(disk, Fail(errno.EIO, match="sync *"))
    handle = tapped.create("/s/f")
    tapped.write(handle, b"x")
    with pytest.raises(OSError, match="Input/output error"):
        tapped.sync(handle)
    tapped.sync(handle)
    disk.sync_dir("/s")
    disk.mark("claimed")

    claimed = [survivor.tree() for point, survivor in crash_states(disk) if point.marks]
    assert {"/s": None, "/s/f": b""} in claimed


@pytest.mark.parametrize(
    ("drop", "dropped"),
    [
        (Drop(), ["sync /s/d/t", "sync_dir /s/d"]),
        (Drop(nth=2), ["sync_dir /s/d"]),
        (Drop(match="sync *"), ["sync /s/d/t"]),
        (Drop(nth=1, match="*/d"), ["sync_dir /s/d"]),
        (Drop(nth=3), []),
    ],
)
def test_a_dropped_sync_did_not_happen(drop: Drop, dropped: list[str]) -> None:
    disk = SimDisk("/s")
    replace(TappedDisk(disk, drop), "/s")
    syncs = [str(step) for step in disk.log if str(step).startswith("sync")]

    assert [str(step) for step in drop.dropped] == dropped
    assert sorted(syncs + dropped) == ["sync /s/d/t", "sync_dir /s/d"]


def test_a_tapped_real_disk_fails_as_a_simulated_one(tmp_path: Path) -> None:
    tapped = TappedDisk(PosixDisk(), Fail(errno.ENOSPC, match="write *", part=0.25))
    with pytest.raises(OSError, match="No space left"):
        replace(tapped, str(tmp_path))

    assert (tmp_path / "d/t").read_bytes() == b"12"


def test_the_file_of_a_lock_counts_as_created_once() -> None:
    tapped = TappedDisk(SimDisk(), Fail(errno.ENOSPC, nth=2, lasting=True))
    with tapped.lock("/l", 0.0):
        pass
    with tapped.lock("/l", 0.0):
        pass
    with pytest.raises(OSError, match="No space left"), tapped.lock("/other", 0.0):
        pass

"""A second fault while the first is being dealt with: an opening that is cut off after damage.

The journal of a run has lost records, so whoever opens it takes in all checkpoints that are there.
What it writes of that is cut off after every record, and in the middle of each; the next one must
lose nothing that was acknowledged, and give out no number twice.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.checkpoint.commit import deliver
from holdfast.checkpoint.manifests import manifest_key
from holdfast.control.record.litter import find_litter, sweep
from holdfast.control.record.open_run import open_run
from holdfast.control.record.run_view import look, verify
from holdfast.errors import HoldfastError
from holdfast.journal.lease import lease_key
from holdfast.storage.local.store import LocalStore
from holdfast.testing.disk import SimDisk
from holdfast.testing.faults import Fail, TappedDisk
from holdfast.testing.oplog import Image
from tests.clocks import FakeClock
from tests.faults.stories import ROOT
from tests.runs import commit_to, save_files

JOURNAL = f"{ROOT}/.holdfast/journal"
ACKNOWLEDGED = {0, 1, 2}
UNFINISHED = 3  # a number that was given out, of which the journal knows nothing any more


def damaged_run(folder: Path, *, keeps: int) -> Image:
    """Return a disk with a run of three checkpoints whose journal has lost all but some records."""
    disk = SimDisk(os.path.dirname(ROOT))
    store = LocalStore(ROOT, disk)
    source = save_files(folder / "source", {"model.pt": b"w" * 100})
    run = open_run(store, name="run", clock=FakeClock(), beats=False)
    for _ in ACKNOWLEDGED:
        commit_to(run, source)
    slot = run.begin_checkpoint(attempt=1)
    deliver(store, slot, 0, source)
    disk.mkdir(f"{ROOT}/{slot.directory}")  # what a crash has left of it
    run.lease.release(run.journal.next_seq)
    (name, _), *others = disk.scan(JOURNAL)
    assert not others
    lines = store.get(f".holdfast/journal/{name}").data.splitlines(keepends=True)
    truncate(disk, f"{JOURNAL}/{name}", sum(map(len, lines[: keeps + 1])))
    return disk.image()


def truncate(disk: SimDisk, path: str, size: int) -> None:
    handle = disk.open_append(path)
    disk.truncate(handle, size)
    disk.close(handle)


def cuts_of(image: Image) -> Iterator[tuple[SimDisk, str]]:
    """Yield a disk for every way in which the opening of the run can be cut off."""
    disk = SimDisk(image=image)
    store = LocalStore(ROOT, disk)
    open_run(store, clock=FakeClock(2_000_000.0), beats=False)
    newest = max(name for name, _ in disk.scan(JOURNAL))
    data, at = store.get(f".holdfast/journal/{newest}").data, 0
    opened = disk.image()
    for line in data.splitlines(keepends=True):
        for size in (at, at + len(line) // 2, at + len(line) - 1):
            cut = SimDisk(image=opened)
            truncate(cut, f"{JOURNAL}/{newest}", size)
            yield cut, f"cut off after {size} of {len(data)} bytes, in {line[:60]!r}"
        at += len(line)
    yield disk, "not cut off"


def must_have_all(disk: SimDisk, where: str) -> None:
    store, clock = LocalStore(ROOT, disk), FakeClock(3_000_000.0)
    view = look(store, clock)
    assert {one.number for one in view.record.usable()} == ACKNOWLEDGED, where
    assert not [one for one in verify(view).litter if one.number in ACKNOWLEDGED], where
    for _ in range(2):
        run = open_run(store, clock=clock, beats=False)
        sweep(run)
        newest = run.newest_good()
        assert {one.number for one in run.record.usable()} == ACKNOWLEDGED, where
        assert newest is not None and newest.number == max(ACKNOWLEDGED), where
        assert run.record.next_number > UNFINISHED, where
        assert not find_litter(store, run.run_id, run.record), where
        run.close()


@pytest.mark.parametrize("keeps", [0, 1, 3])
def test_an_opening_that_is_cut_off_anywhere_after_damage_loses_no_checkpoint(
    keeps: int, tmp_path: Path
) -> None:
    cuts = 0
    for disk, where in cuts_of(damaged_run(tmp_path, keeps=keeps)):
        must_have_all(disk, where)
        cuts += 1
    assert cuts > 9


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_opening_that_fails_at_any_write_after_damage_loses_no_checkpoint(
    code: int, tmp_path: Path
) -> None:
    image = damaged_run(tmp_path, keeps=1)
    for nth in range(1, 1000):
        disk, tap = SimDisk(image=image), Fail(code, nth, part=0.7, lasting=True)
        try:
            run = open_run(
                LocalStore(ROOT, TappedDisk(disk, tap)), clock=FakeClock(2_000_000.0), beats=False
            )
            sweep(run)
            run.close()
        except HoldfastError:
            pass
        if not tap.failed:
            break
        must_have_all(disk, f"failed: {tap.failed[0]}")
    assert nth > 10


def test_a_sweep_takes_no_commit_for_litter_while_records_are_known_to_be_lost(
    tmp_path: Path,
) -> None:
    """Whatever the journal says of it: it is the one that has forgotten."""
    disk = SimDisk(image=damaged_run(tmp_path, keeps=1))
    store, clock = LocalStore(ROOT, disk), FakeClock(2_000_000.0)
    run = open_run(store, clock=clock, beats=False)
    for number in ACKNOWLEDGED:
        del run.record.kept[number]

    sweep(run)

    assert all(store.stat(manifest_key(f"checkpoint_{number:06d}")) for number in ACKNOWLEDGED)
    assert store.stat(lease_key(run.epoch)) is not None

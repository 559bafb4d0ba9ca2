"""Storage that cannot be read for a while: any single look at it fails, or all from there on.

What could not be read is not damaged. Nothing is enumerated by hand: the first look fails, then the
second, the third … until a restore passes without meeting the failure. Afterwards, whatever the
failure was and wherever it hit, no checkpoint is set aside, nothing is deleted, and the next driver
carries on from the newest checkpoint.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.control.open_run import OpenRun, open_run
from holdfast.control.upkeep import sweep
from holdfast.core.manifest import Manifest
from holdfast.errors import HoldfastError, StoreError
from holdfast.journal.segments import JOURNAL
from holdfast.storage import damage, transfer
from holdfast.storage.base import Store
from holdfast.storage.local import LocalStore
from holdfast.storage.retry import Retrying, RetryPolicy
from holdfast.testing.disk import SimDisk
from holdfast.testing.faults import Fail, ReadTappedDisk
from holdfast.testing.oplog import Image
from tests.faults.stories import ROOT, FakeClock, Teller

PASSING = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE]
SECOND_FAULTS = [
    (errno.EIO, journal, lasting)
    for journal in ("whole", "header", "commits", "gone")
    for lasting in (False, True)
]
NEWEST = 2


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read one after the other, so that the nth look is always the same one."""
    monkeypatch.setattr(transfer, "THREADS_LOCAL", 1)
    monkeypatch.setattr(damage, "THREADS_VERIFY", 1)


@cache
def left_behind(journal: str) -> Image:
    """Return the disk of a run with three checkpoints whose journal is as told."""
    disk = SimDisk("/storage")
    with TemporaryDirectory() as folder:
        teller = Teller(Path(folder), disk, disk)
        run = teller.open()
        for _ in range(NEWEST + 1):
            teller.commit(run)
        teller.close(run)
    store = LocalStore(ROOT, disk)
    match journal:
        case "whole":
            pass
        case "gone":
            store.delete_tree(JOURNAL)
        case _:
            [key] = [entry.key for entry in store.entries(JOURNAL)]
            lines = store.get(key).data.splitlines(keepends=True)
            lost = {
                "header": [0],
                "commits": [at for at, one in enumerate(lines) if b"commi" in one],
            }
            for at in lost[journal]:
                lines[at] = b"#" * (len(lines[at]) - 1) + b"\n"
            store.put(key, b"".join(lines))
    return disk.image()


def files_of(disk: SimDisk) -> dict[str, bytes]:
    """Return what is at rest of the checkpoints and of their manifests."""
    store = LocalStore(ROOT, disk)
    return {
        entry.key: store.get(entry.key).data
        for entry in store.entries()
        if entry.key.startswith(("checkpoint_", ".holdfast/manifests/"))
    }


def restore(store: Store, clock: FakeClock) -> Manifest | None:
    """Do what a driver does before its workers begin."""
    run = open_run(store, name="story", clock=clock, beats=False)
    with closed_at_last(run):
        sweep(run)
        return run.newest_good()


@contextlib.contextmanager
def closed_at_last(run: OpenRun) -> Iterator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(HoldfastError):
            run.close()


def failures(
    code: int, journal: str, *, lasting: bool, match: str = "*"
) -> Iterator[tuple[Fail, SimDisk]]:
    """Yield a tap for every look that can fail, with a disk for it, until one was not met."""
    for nth in itertools.count(1):
        tap = Fail(code, nth, match=match, lasting=lasting)
        yield tap, SimDisk(image=left_behind(journal))
        if not tap.failed:
            return


def must_go_on(disk: SimDisk, before: dict[str, bytes], tap: Fail, clock: FakeClock) -> None:
    """The storage is back: a driver finds all that there was and begins with the newest."""
    where = f"after {tap.failed[:1]}"
    clock.sleep(3600.0)
    run = open_run(LocalStore(ROOT, disk), name="story", clock=clock, beats=False)
    newest = run.newest_good()

    assert run.record.quarantined() == [], where
    assert sorted(run.record.kept) == list(range(NEWEST + 1)), where
    assert newest is not None and newest.number == NEWEST, where
    sweep(run)
    run.close()
    assert files_of(disk) == before, where


@pytest.mark.parametrize(
    ("code", "journal", "lasting"),
    [*SECOND_FAULTS, *((code, "whole", False) for code in (*PASSING, errno.EACCES))],
)
def test_a_look_that_fails_costs_no_checkpoint(code: int, journal: str, lasting: bool) -> None:
    """With a journal that is damaged, this is a second fault during recovery from the first."""
    for tap, disk in failures(code, journal, lasting=lasting):
        before, clock = files_of(disk), FakeClock()
        with contextlib.suppress(StoreError):  # no other error, and no OSError above all
            restore(LocalStore(ROOT, ReadTappedDisk(disk, tap)), clock)
        must_go_on(disk, before, tap, clock)


@pytest.mark.parametrize("code", [errno.EIO, *PASSING], ids=errno.errorcode.get)
def test_a_checkpoint_that_cannot_be_read_once_is_read_again(code: int) -> None:
    for tap, disk in failures(code, "whole", lasting=False, match="* */checkpoint_0*"):
        clock = FakeClock()
        store = Retrying(LocalStore(ROOT, ReadTappedDisk(disk, tap)), RetryPolicy(), clock=clock)
        newest = restore(store, clock)

        assert newest is not None and newest.number == NEWEST, f"after {tap.failed}"

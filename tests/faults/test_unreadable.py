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

from holdfast.errors import StoreError
from holdfast.journal.segments import JOURNAL
from holdfast.storage import transfer, verify
from holdfast.storage.local.store import LocalStore
from holdfast.storage.retry import Retrying, RetryPolicy
from holdfast.testing.disk import SimDisk
from holdfast.testing.faults import Fail, ReadTappedDisk
from holdfast.testing.oplog import Image
from tests.clocks import FakeClock
from tests.faults.restores import Left, LeftRun, LeftStudy, must_be_as_left, saved_in
from tests.faults.stories import ROOT

LASTING = pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
RUN, STUDY = LeftRun(), LeftStudy()


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read one after the other, so that the nth look is always the same one."""
    monkeypatch.setattr(transfer, "THREADS_LOCAL", 1)
    monkeypatch.setattr(verify, "THREADS_VERIFY", 1)


@cache
def left_behind(left: Left, journal: str) -> Image:
    """Return the disk of something that was left, and whose journal is as told."""
    disk = SimDisk("/storage")
    store = LocalStore(ROOT, disk)
    with TemporaryDirectory() as folder:
        left.leave(store, Path(folder), FakeClock())
    if journal == "gone":
        store.delete_tree(JOURNAL)
    elif journal != "whole":
        [key] = [entry.key for entry in store.entries(JOURNAL)]
        lines = store.get(key).data.splitlines(keepends=True)
        for at, line in enumerate(lines):
            if at == 0 if journal == "header" else b"checkpoint_committed" in line:
                lines[at] = b"#" * (len(line) - 1) + b"\n"
        store.put(key, b"".join(lines))
    return disk.image()


def failures(
    left: Left, code: int, journal: str = "whole", *, lasting: bool = False, match: str = "*"
) -> Iterator[tuple[Fail, SimDisk]]:
    """Yield a tap for every look that can fail, with a disk for it, until one was not met."""
    for nth in itertools.count(1):
        tap = Fail(code, nth, match=match, lasting=lasting)
        yield tap, SimDisk(image=left_behind(left, journal))
        if not tap.failed:
            return


def must_cost_nothing(left: Left, tap: Fail, disk: SimDisk) -> None:
    clock, store = FakeClock(), LocalStore(ROOT, disk)
    before = saved_in(store)
    with contextlib.suppress(StoreError):  # no other error, and no OSError above all
        left.restore(LocalStore(ROOT, ReadTappedDisk(disk, tap)), clock)
    clock.sleep(3600.0)
    must_be_as_left(left, store, before, clock, f"after {tap.failed[:1]}")


@LASTING
@pytest.mark.parametrize("journal", ["whole", "header", "commits", "gone"])
def test_a_look_that_fails_costs_a_run_no_checkpoint(journal: str, *, lasting: bool) -> None:
    """With a journal that is damaged, this is a second fault during recovery from the first."""
    for tap, disk in failures(RUN, errno.EIO, journal, lasting=lasting):
        must_cost_nothing(RUN, tap, disk)


@LASTING
def test_a_look_that_fails_costs_a_study_no_checkpoint(*, lasting: bool) -> None:
    for tap, disk in failures(STUDY, errno.EIO, lasting=lasting):
        must_cost_nothing(STUDY, tap, disk)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EACCES], ids=errno.errorcode.get)
def test_no_kind_of_failure_costs_a_checkpoint(code: int) -> None:
    for left in (RUN, STUDY):
        for tap, disk in failures(left, code, match="* */checkpoint_0*"):
            must_cost_nothing(left, tap, disk)


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE], ids=errno.errorcode.get)
def test_a_checkpoint_that_cannot_be_read_once_is_read_again(code: int) -> None:
    for left in (RUN, STUDY):
        for tap, disk in failures(left, code, match="* */checkpoint_0*"):
            clock, tapped = FakeClock(), LocalStore(ROOT, ReadTappedDisk(disk, tap))
            begins_with, _ = left.restore(Retrying(tapped, RetryPolicy(), clock=clock), clock)

            assert begins_with == left.begins_with, f"after {tap.failed}"

"""A disk that is full, broken or forbidden at any single write, or from there on for good.

Nothing is enumerated by hand: the first write fails, then the second, the third … until a life
passes without meeting the failure. What must be true afterwards is what must be true after a
power cut (`stories.recover`): all that was acknowledged is whole, and a sweep leaves no litter.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from holdfast.control.record.litter import find_litter, sweep
from holdfast.control.record.open_run import OpenRun, open_run
from holdfast.errors import HoldfastError, StoreDenied, StoreError, StoreFull
from holdfast.storage import transfer
from holdfast.storage.base import Buffer
from holdfast.storage.local.disk import PosixDisk
from holdfast.storage.local.store import LocalStore
from holdfast.storage.verify import damage_of
from holdfast.testing.disk import SimDisk
from holdfast.testing.faults import Fail, TappedDisk
from holdfast.testing.oplog import Marked
from tests.clocks import FakeClock
from tests.faults.stories import ROOT, Teller, must, recover
from tests.runs import commit_to, save_files

ERRORS: dict[int, type[StoreError]] = {
    errno.ENOSPC: StoreFull,
    errno.EIO: StoreError,
    errno.EACCES: StoreDenied,
}
FAILURES = pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written one after the other, so that the nth write is always the same one."""
    monkeypatch.setattr(transfer, "THREADS_LOCAL", 1)


# ---------------------------------------------------------------------------------- any write


def _commit(teller: Teller, run: OpenRun) -> None:
    teller.commit(run)


def _retain(teller: Teller, run: OpenRun) -> None:
    teller.retire(run, keep=1)


def _append(teller: Teller, run: OpenRun) -> None:
    run.note("said", {"text": "hello"})


def _renew(teller: Teller, run: OpenRun) -> None:
    run.lease.renew(run.journal.next_seq)


def _compact(teller: Teller, run: OpenRun) -> None:
    run.compact()


def _sweep(teller: Teller, run: OpenRun) -> None:
    sweep(run)


def _close(teller: Teller, run: OpenRun) -> None:
    teller.close(run)


LIFE = [_commit, _commit, _retain, _append, _renew, _compact, _commit, _sweep, _retain, _close]


@dataclass
class Life:
    """A run on a failing disk: what it promised, and what it said when a write failed."""

    disk: SimDisk
    tap: Fail
    sources: Path
    said: list[tuple[str, Exception]] = field(default_factory=list)

    def live(self) -> None:
        """Do everything a driver does; a step that fails is reported, and life goes on."""
        teller = Teller(self.sources, self.disk, TappedDisk(self.disk, self.tap))
        run = self._attempt("open", teller.open)
        if run is None and not self.tap.lasting:
            run = self._attempt("open again", teller.open)
        if run is None:
            return
        run.journal._segment_bytes = 600  # noqa: SLF001  # so that rotation happens too
        for step in LIFE:
            self._attempt(step.__name__, partial(step, teller, run))

    def _attempt(self, name: str, act: Callable[[], OpenRun | None]) -> OpenRun | None:
        try:
            return act()
        except (HoldfastError, OSError) as error:
            self.said.append((name, error))
            return None

    def promises(self) -> list[str]:
        return [one.label for one in self.disk.log if isinstance(one, Marked)]

    def where(self) -> str:
        said = "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in self.said)
        return f"failed: {self.tap.failed[0]}; said: {said or 'nothing'}"


def lives(code: int, sources: Path, *, lasting: bool) -> Iterator[Life]:
    """Yield a life for every write that can fail, after it was lived."""
    for nth in range(1, 10_000):
        tap = Fail(code, nth, lasting=lasting, part=0.5)
        life = Life(SimDisk(os.path.dirname(ROOT)), tap, sources)
        life.live()
        if not tap.failed:
            assert life.said == [], "nothing failed, and yet something was said"
            assert nth > 150, "hardly any write was met: is the disk tapped?"
            return
        yield life
    pytest.fail("this life never ends")


@FAILURES
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
def test_a_failed_write_is_told_by_its_path_and_costs_nothing_acknowledged(
    code: int, lasting: bool, tmp_path: Path
) -> None:
    for life in lives(code, tmp_path, lasting=lasting):
        for _, error in life.said:
            must(isinstance(error, ERRORS[code]) and ROOT in str(error), life.where())
        try:
            recover(SimDisk(image=life.disk.image()), life.promises())
        except (AssertionError, HoldfastError) as violation:
            raise AssertionError(f"{life.where()}\n  then: {violation}") from violation


@FAILURES
def test_a_write_that_fails_once_costs_only_the_step_it_is_in(code: int, tmp_path: Path) -> None:
    """The same driver goes on: it is not locked out by itself, and what comes later works."""
    for life in lives(code, tmp_path, lasting=False):
        assert len(life.said) <= 1, life.where()


@FAILURES
def test_a_write_that_fails_is_never_passed_over_in_silence(code: int, tmp_path: Path) -> None:
    """Only what removes litter may go on without a word to its caller: it is swept later."""
    silent = {
        life.tap.failed[0].verb
        for life in lives(code, tmp_path, lasting=False)
        if not life.said and not _is_cleaning(life)
    }

    assert silent == set()


def _is_cleaning(life: Life) -> bool:
    step = life.tap.failed[0]
    is_removal = step.verb in ("remove", "rmdir")
    is_above = not step.path.startswith(os.path.dirname(ROOT))  # not ours to sync, if we may not
    return is_above or (is_removal and ("/staging/" in step.path or step.path.endswith(".hf-tmp")))


# ---------------------------------------------------------------------------------- a small disk


class Quota(PosixDisk):
    """A disk with room for so many bytes below one folder, where mounting is not allowed."""

    def __init__(self, top: Path, room_bytes: int) -> None:
        self._top, self._room_bytes = top, room_bytes

    def write(self, handle: int, data: Buffer) -> None:
        used = sum(path.stat().st_size for path in self._top.rglob("*") if path.is_file())
        if used + len(data) > self._room_bytes:
            super().write(handle, memoryview(data)[: max(0, self._room_bytes - used)])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(handle, data)


@dataclass
class SmallDisk:
    """A folder with little room, most of which a filler can take."""

    top: Path
    store: LocalStore

    def leave_room(self, pages: int) -> None:
        """Fill the disk but for so many pages of 4 KiB."""
        self.free()
        filler = os.open(self.top / "filler", os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):  # until the disk is full
            while os.write(filler, b"x" * 4096):
                continue
        os.ftruncate(filler, max(0, os.fstat(filler).st_size // 4096 - pages) * 4096)
        os.close(filler)

    def free(self) -> None:
        (self.top / "filler").unlink(missing_ok=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A tmpfs of 512 KiB; where mounting is not allowed, the same limit kept by ourselves."""
    top = tmp_path / "small"
    top.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(top)]
    is_mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    try:
        if is_mounted:
            yield SmallDisk(top, LocalStore(top / "run"))
        else:
            yield QuotaDisk(top, LocalStore(top / "run", Quota(top, 512 << 10)))
    finally:
        if is_mounted:
            subprocess.run(["umount", str(top)], check=True)


class QuotaDisk(SmallDisk):
    """The filler is written with the quota in mind, since the kernel does not mind it."""

    def leave_room(self, pages: int) -> None:
        self.free()
        used = sum(path.stat().st_size for path in self.top.rglob("*") if path.is_file())
        (self.top / "filler").write_bytes(b"x" * max(0, (512 << 10) - used - 4096 * pages))


@pytest.mark.req("T-069")
def test_a_real_disk_that_is_full_at_any_moment_of_a_commit_loses_nothing(
    small_disk: SmallDisk, tmp_path: Path
) -> None:
    """One page more is free each time, until there is room for the whole commit."""
    clock, store = FakeClock(), small_disk.store
    files = {"model.pt": b"w" * 20_000, "deep/opt.pt": b"o" * 9_000}
    source = save_files(tmp_path / "source", files)
    acknowledged: list[int] = []
    refusals: list[StoreFull] = []
    for pages in range(40):
        small_disk.leave_room(pages)
        try:
            with open_run(store, name="small", clock=clock, beats=False) as run:
                acknowledged.append(commit_to(run, source).number)
        except StoreFull as full:
            refusals.append(full)
        small_disk.free()
        clock.sleep(60)
        assert_whole_and_tidy(store, clock, acknowledged)
        if acknowledged:
            break

    assert acknowledged, "there was never enough room"
    assert len(refusals) >= 8, "hardly any write met the full disk"
    assert all(str(store.root) in full.message for full in refusals)
    assert {full.hint for full in refusals} == {"free some space, then give the same command again"}


def assert_whole_and_tidy(store: LocalStore, clock: FakeClock, acknowledged: list[int]) -> None:
    with open_run(store, name="small", clock=clock, beats=False) as run:
        usable = {kept.number for kept in run.record.usable()}
        newest = run.newest_good()
        sweep(run)

        assert set(acknowledged) <= usable
        assert (newest.number if newest else -1) >= max(acknowledged, default=-1)
        assert run.journal.damages == []
        if newest is not None:
            assert damage_of(store, newest.directory, newest.files) == []
        assert find_litter(store, run.identity.run_id, run.record) == []
    left = [path for path in Path(store.root).rglob("*") if path.name.endswith(".hf-tmp")]
    assert left == []
    assert list((Path(store.root) / ".holdfast" / "staging").glob("*")) == []


def test_a_run_whose_end_cannot_be_written_down_can_be_opened_again_at_once(
    tmp_path: Path,
) -> None:
    tap = Fail(errno.ENOSPC, match="nothing", lasting=True)
    run = open_run(LocalStore(tmp_path / "run", TappedDisk(PosixDisk(), tap)))
    tap.match = "write */journal/*"
    with pytest.raises(StoreFull):
        run.close()

    open_run(LocalStore(tmp_path / "run")).close()

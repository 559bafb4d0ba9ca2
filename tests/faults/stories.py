"""Stories told to a simulated disk, and what must be true of a run after a cut in any of them.

A story marks the log with what it promises as it goes: `begun N` when a number has been given out,
`acked N` when a commit has returned, `refused N` when it was, `retiring N` when a checkpoint may go
from here on, `epoch N` and `closed N` when a driver has opened the run and left it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.checkpoint.commit import Slot, deliver
from holdfast.checkpoint.manifests import get_manifest
from holdfast.control.record.litter import find_litter, sweep
from holdfast.control.record.open_run import OpenRun, open_run
from holdfast.control.record.run_view import look
from holdfast.core.checkpoint.retention import Retention
from holdfast.errors import LeaseLost
from holdfast.journal.lease import read_lease
from holdfast.storage.local.disk import Disk
from holdfast.storage.local.store import LocalStore
from holdfast.storage.verify import damage_of
from holdfast.testing.disk import SimDisk
from holdfast.testing.faults import Tap, TappedDisk
from tests.clocks import FakeClock

ROOT = "/storage/run"
RANKS = 2


@dataclass
class Teller:
    """Drives runs on one simulated disk and marks what they promise."""

    sources: Path
    disk: SimDisk
    seen: Disk  # the same disk as the run sees it: a mutant may stand in between
    clock: FakeClock = field(default_factory=FakeClock)

    def open(self) -> OpenRun:
        run = open_run(LocalStore(ROOT, self.seen), name="story", clock=self.clock, beats=False)
        self.disk.mark(f"epoch {run.lease.epoch}")
        return run

    def close(self, run: OpenRun) -> None:
        run.close()
        self.disk.mark(f"closed {run.lease.epoch}")

    def begin(self, run: OpenRun, directory: str | None = None) -> Slot:
        slot = run.begin_checkpoint(attempt=1, directory=directory)
        self.disk.mark(f"begun {slot.number}")
        return slot

    def commit(self, run: OpenRun, directory: str | None = None) -> int:
        slot = self.begin(run, directory)
        parts = [
            deliver(run.store, slot, rank, self.source(slot.number, rank)) for rank in range(RANKS)
        ]
        metrics = {"loss": -slot.number}
        run.commit_checkpoint(slot, parts, world_size=RANKS, step=slot.number, metrics=metrics)
        self.disk.mark(f"acked {slot.number}")
        return slot.number

    def retire(self, run: OpenRun, keep: int) -> None:
        numbers = sorted(run.record.kept)[:-keep]
        for number in numbers:
            self.disk.mark(f"retiring {number}")
        run.retain(Retention(keep=keep))

    def source(self, number: int, rank: int) -> Path:
        folder = self.sources / f"{number}-{rank}"
        for name, content in contents(number, rank).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder


def contents(number: int, rank: int) -> dict[str, bytes]:
    """Return what a rank saves; the number is in every file, so generations cannot be confused."""
    shard = {f"shards/{rank}.bin": f"shard {rank} of {number}".encode() * 3}
    return {**shard, "model.pt": f"model of {number}".encode()} if rank == 0 else shard


def merged_contents(number: int) -> dict[str, bytes]:
    return {name: data for rank in range(RANKS) for name, data in contents(number, rank).items()}


def commits_and_retention(teller: Teller) -> None:
    run = teller.open()
    for _ in range(3):
        teller.commit(run)
        teller.retire(run, keep=2)
    teller.close(run)


def named_checkpoint_used_twice(teller: Teller) -> None:
    """A name of the user's own whose first use was cut off must not mix with its second."""
    run = teller.open()
    teller.commit(run)
    slot = teller.begin(run, "epoch-1")
    deliver(run.store, slot, 0, teller.source(slot.number, 0))
    teller.commit(run, "epoch-1")
    teller.close(run)


def journal_upkeep(teller: Teller) -> None:
    """Short segments, so that rotation, compaction and their deletions all happen."""
    run = teller.open()
    run.journal._segment_bytes = 600  # noqa: SLF001
    teller.commit(run)
    run.lease.renew(run.journal.next_seq)
    run.compact()
    teller.commit(run)
    run.compact()
    sweep(run)
    teller.close(run)


def takeover(teller: Teller) -> None:
    """A driver that is replaced in the middle of a commit cannot undo what its successor did."""
    first = teller.open()
    teller.commit(first)
    slot = teller.begin(first)
    part = deliver(first.store, slot, 0, teller.source(slot.number, 0))
    teller.clock.sleep(1000)
    second = teller.open()
    teller.commit(second)
    try:
        first.commit_checkpoint(slot, [part])
        teller.disk.mark(f"acked {slot.number}")
    except LeaseLost:
        teller.disk.mark(f"refused {slot.number}")
    for act in (
        lambda: first.begin_checkpoint(attempt=1),
        lambda: first.lease.renew(first.journal.next_seq),
        lambda: first.retain(Retention(keep=1)),
        lambda: sweep(first),
    ):
        with contextlib.suppress(LeaseLost):
            act()
    teller.commit(second)
    teller.close(second)


STORIES: dict[str, Callable[[Teller], None]] = {
    "commits": commits_and_retention,
    "named": named_checkpoint_used_twice,
    "journal": journal_upkeep,
    "takeover": takeover,
}


def record(story: Callable[[Teller], None], sources: Path, tap: Tap | None = None) -> SimDisk:
    """Return the disk a story was told to, with the log of everything that happened."""
    disk = SimDisk(os.path.dirname(ROOT))
    seen = disk if tap is None else TappedDisk(disk, tap)
    story(Teller(sources, disk, seen))
    return disk


class Violation(AssertionError):
    """A promise that a state of the disk breaks."""


def recover(disk: SimDisk, marks: Sequence[str], *, now: float = 2_000_000.0) -> None:
    """Open the run that a power cut left and hold it against what was promised."""
    promised: dict[str, set[int]] = defaultdict(set)
    for mark in marks:
        kind, number = mark.split()
        promised[kind].add(int(number))
    clock, store = FakeClock(now), LocalStore(ROOT, disk)
    check_what_is_in_sight(store)
    newest_epoch = max(promised["epoch"], default=0)
    if newest_epoch:
        lease = read_lease(store, newest_epoch)
        must(lease is not None, "the lease cannot be read")
        assert lease is not None
        must(lease.released or newest_epoch not in promised["closed"], "the release is lost")
        must(look(store, clock).journal_damage == [], "an onlooker sees damage")
    run = open_run(store, name="story", clock=clock, beats=False)
    must(run.journal.damages == [], f"damage: {run.journal.damages}")
    must(run.lease.epoch > newest_epoch, "an epoch was given out twice")
    must(
        run.record.next_number > max(promised["begun"], default=-1),
        "a number would be given out twice",
    )
    usable = {kept.number: kept.directory for kept in run.record.usable()}
    must(not run.record.quarantined(), "something is in quarantine")
    must(promised["acked"] - promised["retiring"] <= usable.keys(), f"only {usable} is left")
    must(promised["refused"].isdisjoint(usable), "a refused commit has come back")
    for kept_number, directory in usable.items():
        check_contents(store, kept_number, directory)
    newest = run.newest_good()
    must(
        (newest.number if newest else -1) >= max(promised["acked"], default=-1),
        "an older checkpoint is offered",
    )
    sweep(run)
    must(not find_litter(store, run.identity.run_id, run.record), "there is litter after a sweep")
    must(not (left := strangers(disk, set(usable.values()))), f"left behind: {left}")
    run.close()
    kept = {one.number for one in look(store, clock).record.usable()}
    must(kept == usable.keys(), "closing changed what is kept")


def check_what_is_in_sight(store: LocalStore) -> None:
    """A folder that somebody may open by its name is whole, also one that is being removed."""
    for folder in store.folders():
        if numbered := re.fullmatch(r"checkpoint_(\d+)", folder):
            number = int(numbered[1])
            found = {entry.key.removeprefix(f"{folder}/") for entry in store.entries(folder)}
            whole = ({*merged_contents(number)}, {*contents(number, 0)})
            must(found in whole, f"{folder} is half there: {found}")


def check_contents(store: LocalStore, number: int, directory: str) -> None:
    manifest = get_manifest(store, directory)
    must(damage_of(store, directory, manifest.files) == [], f"{directory} is damaged")
    expected = merged_contents(number)
    # A takeover story commits one rank's part only.
    named = {entry.path for entry in manifest.files}
    must(named in ({*expected}, {*contents(number, 0)}), f"{directory} has files {named}")
    found = {entry.key.removeprefix(f"{directory}/") for entry in store.entries(directory)}
    must(found == named, f"{directory} holds {found}, its manifest names {named}")
    for path in named:
        data = store.get(f"{directory}/{path}").data
        must(data == expected[path], f"{directory}/{path} is of another generation")


def strangers(disk: SimDisk, directories: set[str]) -> list[str]:
    """Return what lies in the run's folder that is neither a checkpoint nor the run's record."""
    ours = {f"{ROOT}/{directory}" for directory in directories}
    found = []
    for path, data in disk.tree().items():
        if not path.startswith(f"{ROOT}/") or path.startswith(f"{ROOT}/.holdfast/"):
            if data is not None and ("/staging/" in path or path.endswith(".hf-tmp")):
                found.append(path)
            continue
        if path != f"{ROOT}/.holdfast" and not any(
            path == one or path.startswith(f"{one}/") for one in ours
        ):
            found.append(path)
    return found


def must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Violation(otherwise)

"""Ten thousand random damages to a run at rest: each is noticed, and nothing damaged is returned.

A damage is a flipped bit, a cut, a deletion or a swap, to any file of the run: checkpoint files,
manifests, journal, leases, run.json. What must hold is worked out from the damage alone: whoever
touched a file of checkpoint 4 has damaged checkpoint 4 and nothing else.

Three kinds of damage change nothing that counts, and may pass unnoticed:

- to the lease of an epoch that is over: its object only says that the epoch was taken, and the
  next epoch's says that too. Nobody reads it again.
- the newline at the end of run.json, a manifest or a lease, if it is only cut off: the sealed
  line before it is whole.
- a swap of two files with the same contents.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.checkpoint.commit import deliver
from holdfast.checkpoint.manifests import MANIFESTS
from holdfast.control.record.identity import RUN_KEY
from holdfast.control.record.open_run import OpenRun, open_run
from holdfast.control.record.run_view import look, verify
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.checkpoint.retention import Retention
from holdfast.errors import CannotResume, RunHeld
from holdfast.journal.lease import LEASES, lease_key
from holdfast.journal.segments import JOURNAL
from holdfast.storage import transfer
from holdfast.storage.base import Store
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.testing.disk import SimDisk
from tests.clocks import FakeClock
from tests.faults.stories import must
from tests.runs import save_files

DAMAGES = 10_000
CHUNK = 250
ROOT = "/storage/run"
RANKS = 2
KEPT = {1: "checkpoint_000001", 2: "best/one", 3: "checkpoint_000003", 5: "checkpoint_000005"}
NEWEST_EPOCH = 4


@pytest.fixture(autouse=True)
def _quiet_and_in_one_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transfer, "THREADS_LOCAL", 1)
    monkeypatch.setattr(transfer, "THREADS_REMOTE", 1)
    caplog.set_level(logging.CRITICAL, "holdfast")


# ---------------------------------------------------------------------------------- the run


def saved(number: int, rank: int) -> dict[str, bytes]:
    """Return what a rank saves; sizes repeat from checkpoint to checkpoint, contents never."""
    seed = random.Random(f"{number}/{rank}")
    shard = {f"shards/{rank}.bin": seed.randbytes(200)}
    return {"model.pt": seed.randbytes(200), "empty": b""} if rank == 0 else shard


def write_history(store: Store, clock: FakeClock) -> None:
    """Four drivers, one after the other: a retired checkpoint, a compaction, a burnt number."""
    with TemporaryDirectory() as folder:
        for number, act in enumerate((_first, _second, _third, _fourth), start=1):
            run = open_run(store, name="history", clock=clock, beats=False)
            assert run.lease.epoch == number
            act(run, Path(folder))
            run.close()
            clock.sleep(5)


def _first(run: OpenRun, folder: Path) -> None:
    _commit(run, folder, 0)
    _commit(run, folder, 1)
    run.pin(1, by="ann")


def _second(run: OpenRun, folder: Path) -> None:
    _commit(run, folder, 2, directory="best/one")
    run.retain(Retention(keep=2))
    run.compact()


def _third(run: OpenRun, folder: Path) -> None:
    _commit(run, folder, 3)
    run.begin_checkpoint(attempt=1)  # number 4 is given out and never used


def _fourth(run: OpenRun, folder: Path) -> None:
    _commit(run, folder, 5)


def _commit(run: OpenRun, folder: Path, number: int, directory: str | None = None) -> None:
    slot = run.begin_checkpoint(attempt=1, directory=directory)
    assert slot.number == number
    parts = [
        deliver(run.store, slot, rank, save_files(folder / f"{number}-{rank}", saved(number, rank)))
        for rank in range(RANKS)
    ]
    run.commit_checkpoint(slot, parts, world_size=RANKS, step=number, metrics={"acc": number})


@dataclass
class Original:
    """A run as it was left, and fresh copies of it to damage."""

    files: dict[str, bytes]
    copy: Callable[[FakeClock], Store]
    time: float


@cache
def original(kind: str) -> Original:
    clock = FakeClock(time.time())  # as a real store keeps it, where a lease cannot be read
    disk = SimDisk("/storage", clock=clock.now)
    store: Store = LocalStore(ROOT, disk) if kind == "disk" else MemoryStore()
    write_history(store, clock)
    files = {entry.key: store.get(entry.key).data for entry in store.entries()}
    image = disk.image()

    def copy(clock: FakeClock) -> Store:
        if kind == "disk":
            return LocalStore(ROOT, SimDisk(image=image, clock=clock.now))
        return _in_memory(files)

    return Original(files, copy, clock.time)


def _in_memory(files: dict[str, bytes]) -> Store:
    store = MemoryStore()
    for key, data in files.items():
        store.put(key, data)
    return store


# ---------------------------------------------------------------------------------- damage


@dataclass
class Damage:
    """What is done to a run: the new contents of some of its files, None for a deleted one."""

    what: str
    changed: dict[str, bytes | None] = field(default_factory=dict)

    def apply(self, store: Store) -> None:
        for key, data in self.changed.items():
            if data is None:
                store.delete(key)
            else:
                store.put(key, data)


def random_damage(files: dict[str, bytes], seed: int) -> Damage:
    """Return the damage of this number; every file is as likely to be hit as any other."""
    choice = random.Random(seed)
    while True:
        key = choice.choice(sorted(files))
        damage = _damage(choice, files, key)
        if damage.changed:
            return damage


def _damage(choice: random.Random, files: dict[str, bytes], key: str) -> Damage:
    data = files[key]
    match choice.choice(["flip", "cut", "delete", "swap"]):
        case "flip" if data:
            bit = choice.randrange(8 * len(data))
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            return Damage(f"flip bit {bit} of {key}", {key: bytes(flipped)})
        case "cut" if data:
            size = choice.randrange(len(data))
            return Damage(f"cut {key} from {len(data)} to {size} bytes", {key: data[:size]})
        case "delete":
            return Damage(f"delete {key}", {key: None})
        case "swap":
            other = choice.choice(sorted(files.keys() - {key}))
            return Damage(f"swap {key} and {other}", {key: files[other], other: data})
        case _:
            return Damage("nothing to flip or cut in an empty file")


def counts(files: dict[str, bytes], key: str, data: bytes | None) -> bool:
    """Whether a change matters: see the list at the top of this file."""
    if data == files[key]:
        return False
    if key.startswith(LEASES) and not is_newest_lease(key):
        return False
    is_one_line = key == RUN_KEY or key.startswith((LEASES, MANIFESTS))
    return not (is_one_line and data == files[key].removesuffix(b"\n"))


def is_newest_lease(key: str) -> bool:
    """Whether an object says if the last driver lives; who it was is known by others too."""
    return key.startswith(f"{lease_key(NEWEST_EPOCH).removesuffix('.json')}-")


def checkpoint_of(key: str) -> int | None:
    """Return the number of the checkpoint that a file or manifest belongs to."""
    for number, directory in KEPT.items():
        if key.startswith(f"{directory}/") or key == f"{MANIFESTS}/{directory}.json":
            return number
    return None


# ---------------------------------------------------------------------------------- what must hold


def check(kind: str, seed: int) -> None:
    """Damage a copy of the run and hold what becomes of it against what must."""
    run = original(kind)
    damage = random_damage(run.files, seed)
    clock = FakeClock(max(run.time, time.time()))
    store = run.copy(clock)
    damage.apply(store)
    hurt = {key for key, data in damage.changed.items() if counts(run.files, key, data)}
    lost = {number for key in hurt if (number := checkpoint_of(key)) is not None}

    assert is_noticed(store, clock) == bool(hurt), "noticed by somebody who only looks on"
    try:
        opened = open_run(store, name="history", clock=clock, beats=False)
    except RunHeld:
        assert any(map(is_newest_lease, hurt)), "held by nobody"
        clock.sleep(60)
        opened = open_run(store, name="history", clock=clock, beats=False)
    good = KEPT.keys() - lost
    assert_only_good_is_returned(opened, good)
    if seed % 4 == 0:  # the others would say the same, and time is short
        opened.close()
        assert_nothing_is_news_any_more(store, clock, good)


def assert_nothing_is_news_any_more(store: Store, clock: FakeClock, good: set[int]) -> None:
    """What was found out is in the journal: the next driver need not find it out again."""
    again = open_run(store, name="history", clock=clock, beats=False)

    assert {kept.number for kept in again.record.usable()} == good
    known = again.record.known_damage.keys()
    assert {damage.identity for damage in again.journal.damages} <= known, "reported twice"


def is_noticed(store: Store, clock: FakeClock) -> bool:
    try:
        return bool(verify(look(store, clock)).damaged)
    except CannotResume as refusal:
        must(store.url in refusal.message, f"{refusal} does not say where")
        return True


def assert_only_good_is_returned(run: OpenRun, good: set[int]) -> None:
    returned = list(good_ones(run))

    assert [manifest.number for manifest in returned] == sorted(good, reverse=True)
    for manifest in returned:
        expected = {k: v for rank in range(RANKS) for k, v in saved(manifest.number, rank).items()}
        assert {entry.path for entry in manifest.files} == expected.keys()
        for path, data in expected.items():
            assert run.store.get(f"{manifest.directory}/{path}").data == data
    assert run.record.next_number >= 6, "a number would be given out twice"


def good_ones(run: OpenRun) -> Iterator[Manifest]:
    """Yield all checkpoints a run would return, by setting aside the newest again and again."""
    while (manifest := run.newest_good()) is not None:
        yield manifest
        del run.record.kept[manifest.number]


def try_damages(kind: str, seeds: range) -> None:
    for seed in seeds:
        try:
            check(kind, seed)
        except Exception as error:
            what = random_damage(original(kind).files, seed).what
            again = f"from tests.faults.test_damage import check; check({kind!r}, {seed})"
            raise AssertionError(f'{what}: {error}\n  python -c "{again}"') from error


# ---------------------------------------------------------------------------------- tests


@pytest.mark.parametrize("first", range(0, DAMAGES, CHUNK))
def test_any_damage_is_noticed_and_the_newest_good_checkpoint_is_returned(first: int) -> None:
    try_damages("disk", range(first, first + CHUNK))


@pytest.mark.parametrize("first", range(0, 2000, CHUNK))
def test_any_damage_to_a_run_on_an_object_store_is_noticed(first: int) -> None:
    try_damages("objects", range(first, first + CHUNK))


def test_an_unharmed_run_is_found_whole() -> None:
    """So that what notices everything is not what complains of everything."""
    for kind in ("disk", "objects"):
        clock = FakeClock(original(kind).time)
        store = original(kind).copy(clock)

        assert not is_noticed(store, clock)
        run = open_run(store, name="history", clock=clock, beats=False)
        assert run.journal.damages == []
        assert_only_good_is_returned(run, {1, 2, 3, 5})


def test_the_damages_reach_every_file_in_every_way() -> None:
    files = original("disk").files
    reached = {
        (key, random_damage(files, seed).what.split()[0])
        for seed in range(DAMAGES)
        for key in random_damage(files, seed).changed
    }

    always, if_filled = ["delete", "swap"], ["flip", "cut"]
    assert reached == {
        (key, way) for key in files for way in (*always, *(if_filled if files[key] else []))
    }
    kinds = {key.split("/")[1] for key in files if key.startswith(".holdfast/")}
    assert kinds == {"journal", "lease", "manifests", "run.json"}
    assert any(".snapshot" in key for key in files if key.startswith(JOURNAL))

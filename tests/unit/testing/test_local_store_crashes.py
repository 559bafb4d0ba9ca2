"""A local store after a power cut at any moment of what it does, and with any sync left out.

A scenario is one thing a store does. It is played on a simulated disk and then judged in every
state a power cut could leave. The proof has two halves: no state breaks a promise, and for every
sync in it there is such a state once that sync is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from holdfast.errors import ObjectMissing
from holdfast.storage.base import IF_ABSENT, IfVersion
from holdfast.storage.digest import digest_bytes
from holdfast.storage.local.store import LocalStore
from holdfast.testing.crashes import crash_states, effective_syncs
from holdfast.testing.disk import SimDisk
from holdfast.testing.faults import Drop, Fuse, PowerCut, Tap, TappedDisk

ROOT = "/sim/run"
OLD, NEW = b"old object", b"new object"
TREE = {"one": b"1" * 10, "deep/two": b"2" * 10, "deep/three": b"3"}


@dataclass(frozen=True)
class Bytes:
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def chunks(self) -> Iterator[bytes]:
        yield self.data[:4]
        yield self.data[4:]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What was there, durably; what is done; and whether a survivor is right.

    `prepare` sees a disk that is settled afterwards, `leave` one that is not: it is what a process
    did that died just before. `is_right` gets whether `act` had returned before the cut.
    """

    act: Callable[[LocalStore], object]
    is_right: Callable[[LocalStore, bool], bool]
    prepare: Callable[[LocalStore], object] = lambda store: None
    leave: Callable[[SimDisk], object] = lambda disk: None

    def begin(self) -> SimDisk:
        """Return the disk before `act`."""
        disk = SimDisk("/sim")
        self.prepare(LocalStore(ROOT, disk))
        disk.settle()
        self.leave(disk)
        return disk

    def play(self, tap: Tap | None = None) -> SimDisk:
        """Return the disk after `act`, which may be tapped."""
        disk = self.begin()
        self.act(LocalStore(ROOT, TappedDisk(disk, tap) if tap is not None else disk))
        disk.mark("acknowledged")
        return disk

    def wrongs(self, disk: SimDisk) -> list[str]:
        """Return the states in which a promise is broken."""
        return [
            str(point)
            for point, survivor in crash_states(disk)
            if not self.is_right(LocalStore(ROOT, survivor), bool(point.marks))
        ]


def found(store: LocalStore, key: str) -> bytes | None:
    try:
        return store.get(key).data
    except ObjectMissing:
        return None


def files(store: LocalStore, prefix: str) -> Mapping[str, bytes]:
    """Return all objects below a folder; all must be readable by name and by listing alike."""
    return {
        entry.key.removeprefix(f"{prefix}/"): store.get(entry.key).data
        for entry in store.entries(prefix)
    }


def goes_from(key: str, old: bytes | None, new: bytes | None) -> Callable[[LocalStore, bool], bool]:
    def is_right(store: LocalStore, acknowledged: bool) -> bool:
        return found(store, key) in ({new} if acknowledged else {old, new})

    return is_right


def write_tree(store: LocalStore, prefix: str = "tree") -> None:
    writer = store.write_tree(prefix)
    for name, data in TREE.items():
        writer.write(name, Bytes(data))
    writer.finish()


def tree_is_written(prefix: str = "tree") -> Callable[[LocalStore, bool], bool]:
    return lambda store, acknowledged: not acknowledged or files(store, prefix) == TREE


def tree_is_moved(store: LocalStore, acknowledged: bool) -> bool:
    before, after = files(store, "work/staging"), files(store, "kept/tree")
    if acknowledged:
        return after == TREE and not before
    return (before, after) in [(TREE, {}), ({}, TREE)]


def tree_is_deleted(store: LocalStore, acknowledged: bool) -> bool:
    return files(store, "tree") == {} or (not acknowledged and files(store, "tree") == TREE)


def append(store: LocalStore) -> None:
    appender = store.appender("journal/1")
    appender.write(b"first line\n")
    appender.write(b"second line\n")
    appender.sync()
    appender.close()


def lines_are_appended(store: LocalStore, acknowledged: bool) -> bool:
    return not acknowledged or found(store, "journal/1") == b"first line\nsecond line\n"


def leave_folders(disk: SimDisk) -> None:
    """Make the folders of a key as a process does that dies before it syncs their names."""
    disk.mkdir(f"{ROOT}/a")
    disk.mkdir(f"{ROOT}/a/b")


SCENARIOS = {
    "put where there is no root": Scenario(
        act=lambda store: store.put("k", NEW), is_right=goes_from("k", None, NEW)
    ),
    "put into new folders": Scenario(
        prepare=lambda store: store.put("other", OLD),
        act=lambda store: store.put("a/b/k", NEW),
        is_right=goes_from("a/b/k", None, NEW),
    ),
    "put into folders left by a dead process": Scenario(
        prepare=lambda store: store.put("other", OLD),
        leave=leave_folders,
        act=lambda store: store.put("a/b/k", NEW),
        is_right=goes_from("a/b/k", None, NEW),
    ),
    "put over an old object": Scenario(
        prepare=lambda store: store.put("a/k", OLD),
        act=lambda store: store.put("a/k", NEW),
        is_right=goes_from("a/k", OLD, NEW),
    ),
    "put if absent": Scenario(
        prepare=lambda store: store.put("a/other", OLD),
        act=lambda store: store.put("a/k", NEW, IF_ABSENT),
        is_right=goes_from("a/k", None, NEW),
    ),
    "put if version": Scenario(
        prepare=lambda store: store.put("a/k", OLD),
        act=lambda store: store.put("a/k", NEW, IfVersion(digest_bytes(OLD))),
        is_right=goes_from("a/k", OLD, NEW),
    ),
    "delete": Scenario(
        prepare=lambda store: store.put("a/k", OLD),
        act=lambda store: store.delete("a/k"),
        is_right=goes_from("a/k", OLD, None),
    ),
    "write a tree": Scenario(act=write_tree, is_right=tree_is_written()),
    "write a tree below a folder": Scenario(
        prepare=lambda store: store.put("other", OLD),
        act=lambda store: write_tree(store, "a/b"),
        is_right=tree_is_written("a/b"),
    ),
    "move a tree": Scenario(
        prepare=lambda store: write_tree(store, "work/staging"),
        act=lambda store: store.move_tree("work/staging", "kept/tree"),
        is_right=tree_is_moved,
    ),
    "delete a tree": Scenario(
        prepare=write_tree,
        act=lambda store: store.delete_tree("tree"),
        is_right=tree_is_deleted,
    ),
    "append": Scenario(act=append, is_right=lines_are_appended),
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_no_power_cut_breaks_a_promise(scenario: Scenario) -> None:
    assert scenario.wrongs(scenario.play()) == []


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_without_any_one_of_its_syncs_a_promise_is_broken(scenario: Scenario) -> None:
    missed = []
    for nth, sync in effective_syncs(scenario.play()).items():
        drop = Drop(nth=nth)
        if not scenario.wrongs(scenario.play(drop)):
            missed.append(sync)
        assert len(drop.dropped) == 1

    assert missed == []


REPEATABLE = [
    "put where there is no root",
    "put into new folders",
    "put over an old object",
    "write a tree",
    "write a tree below a folder",
    "delete",
    "delete a tree",
]


@pytest.mark.parametrize("scenario", [SCENARIOS[name] for name in REPEATABLE], ids=REPEATABLE)
def test_what_a_process_that_dies_leaves_cannot_break_the_promise_of_the_next(
    scenario: Scenario,
) -> None:
    """The first process is killed at each step in turn; the second does all of it again.

    What is there, or gone, may owe that to a process that died before it synced the folder: the
    disk keeps its power in between, so the second sees what the first did not sync.
    """
    for moment in range(1, 100):
        disk = scenario.begin()
        try:
            scenario.act(LocalStore(ROOT, TappedDisk(disk, Fuse(moment))))
            break  # this moment lies beyond the end: every earlier one has been tried
        except PowerCut:
            scenario.act(LocalStore(ROOT, disk))
            disk.mark("acknowledged")

        assert scenario.wrongs(disk) == [], f"moment {moment}"
    assert moment > 2

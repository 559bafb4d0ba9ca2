"""The model of a power cut, on logs so small that all states can be written out by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from holdfast.testing.crashes import crash_states, effective_syncs
from holdfast.testing.disk import SimDisk
from holdfast.testing.fates import Effort

Tree = Mapping[str, bytes | None]


def write(disk: SimDisk, path: str, data: bytes, *, synced: bool = False) -> None:
    handle = disk.create(path)
    disk.write(handle, data)
    if synced:
        disk.sync(handle)
    disk.close(handle)


def old_object() -> SimDisk:
    """Return a disk that holds the file /d/f, durably."""
    disk = SimDisk("/d")
    write(disk, "/d/f", b"old")
    disk.settle()
    return disk


def replace(disk: SimDisk, *, sync: bool, sync_dir: bool) -> None:
    write(disk, "/d/t", b"new", synced=sync)
    disk.rename("/d/t", "/d/f")
    if sync_dir:
        disk.sync_dir("/d")
    disk.mark("replaced")


def trees(disk: SimDisk, *, after: str | None = None) -> list[Tree]:
    """Return the states, sorted; with `after`, those in which this mark had been passed."""
    states = [
        _below(survivor)
        for point, survivor in crash_states(disk)
        if after is None or after in point.marks
    ]
    return ordered(*states)


def _below(disk: SimDisk) -> Tree:
    return {path.removeprefix("/d/"): data for path, data in disk.tree().items() if path != "/d"}


def ordered(*states: Tree) -> list[Tree]:
    return sorted((dict(sorted(state.items())) for state in states), key=repr)


# What can be found of b"new" when its write was not synced.
PARTS = [b"new", b"", b"n", b"ne", b"\0\0\0", b"\0ew"]


def test_a_new_file_is_absent_or_holds_any_part() -> None:
    disk = SimDisk("/d")
    write(disk, "/d/f", b"new")

    assert trees(disk) == ordered({}, *[{"f": part} for part in PARTS])


def test_synced_bytes_are_whole_but_their_name_may_be_lost() -> None:
    disk = SimDisk("/d")
    write(disk, "/d/f", b"new", synced=True)
    disk.mark("synced")

    assert trees(disk, after="synced") == ordered({}, {"f": b"new"})


def test_a_synced_name_may_lead_to_an_empty_file() -> None:
    disk = SimDisk("/d")
    write(disk, "/d/f", b"new")
    disk.sync_dir("/d")
    disk.mark("synced")

    assert trees(disk, after="synced") == ordered(*[{"f": part} for part in PARTS])


def test_a_replacement_without_any_sync_may_leave_a_part_of_the_new() -> None:
    disk = old_object()
    replace(disk, sync=False, sync_dir=False)

    assert trees(disk, after="replaced") == ordered(
        {"f": b"old"},
        *[{"f": b"old", "t": part} for part in PARTS],
        *[{"f": part} for part in PARTS],
    )


def test_a_replacement_whose_bytes_are_synced_leaves_the_old_or_the_new() -> None:
    disk = old_object()
    replace(disk, sync=True, sync_dir=False)

    assert trees(disk, after="replaced") == ordered(
        {"f": b"old"}, {"f": b"old", "t": b"new"}, {"f": b"new"}
    )


def test_a_replacement_with_all_syncs_is_durable() -> None:
    disk = old_object()
    replace(disk, sync=True, sync_dir=True)

    assert trees(disk, after="replaced") == [{"f": b"new"}]


def test_writes_are_lost_in_any_combination() -> None:
    disk = SimDisk("/d")
    write(disk, "/d/f", b"")
    disk.settle()
    handle = disk.open_append("/d/f")
    disk.write(handle, b"a")
    disk.write(handle, b"b")

    assert trees(disk) == ordered(
        {"f": b""},
        {"f": b"a"},
        {"f": b"\0"},
        {"f": b"ab"},
        {"f": b"a\0"},
        {"f": b"\0b"},
        {"f": b"\0\0"},
    )


def test_a_truncation_may_be_lost_while_a_later_write_is_kept() -> None:
    disk = SimDisk("/d")
    write(disk, "/d/f", b"xyz")
    disk.settle()
    handle = disk.open_append("/d/f")
    disk.truncate(handle, 0)
    disk.write(handle, b"a")

    assert trees(disk) == ordered(
        {"f": b"xyz"}, {"f": b""}, {"f": b"a"}, {"f": b"\0"}, {"f": b"ayz"}
    )


def test_a_lost_folder_takes_along_what_was_synced_in_it() -> None:
    disk = SimDisk("/d")
    disk.mkdir("/d/s")
    write(disk, "/d/s/f", b"new", synced=True)
    disk.sync_dir("/d/s")
    disk.mark("synced")

    assert trees(disk, after="synced") == ordered({}, {"s": None, "s/f": b"new"})


@pytest.mark.parametrize("synced", ["/d/from", "/d/to"])
def test_a_rename_between_folders_is_durable_once_either_is_synced(synced: str) -> None:
    disk = SimDisk("/d/from", "/d/to")
    write(disk, "/d/from/f", b"x")
    disk.settle()
    disk.rename("/d/from/f", "/d/to/f")
    disk.mark("renamed")
    disk.sync_dir(synced)
    disk.mark("synced")

    folders: dict[str, bytes | None] = {"from": None, "to": None}
    assert trees(disk, after="synced") == [folders | {"to/f": b"x"}]
    assert trees(disk, after="renamed") == ordered(
        folders | {"from/f": b"x"},
        folders | {"to/f": b"x"},
        folders | {"to/f": b"x"},  # once more under the second mark
    )


def test_renames_in_a_row_are_durable_once_the_last_is() -> None:
    disk = SimDisk("/d/1", "/d/2", "/d/3")
    write(disk, "/d/1/f", b"x")
    disk.settle()
    disk.rename("/d/1/f", "/d/2/f")
    disk.rename("/d/2/f", "/d/3/f")
    disk.sync_dir("/d/3")
    disk.mark("synced")

    assert trees(disk, after="synced") == [{"1": None, "2": None, "3": None, "3/f": b"x"}]


def test_changes_of_one_name_keep_their_order() -> None:
    disk = SimDisk("/d")
    write(disk, "/d/a", b"A")
    write(disk, "/d/c", b"C")
    disk.settle()
    disk.rename("/d/a", "/d/b")
    disk.rename("/d/c", "/d/a")

    assert trees(disk) == ordered(
        {"a": b"A", "c": b"C"}, {"b": b"A", "c": b"C"}, {"a": b"C", "b": b"A"}
    )


@pytest.mark.parametrize("is_synced", [False, True])
def test_a_file_renamed_into_a_folder_that_is_lost_keeps_its_old_name(is_synced: bool) -> None:
    disk = old_object()
    disk.mkdir("/d/s")
    disk.rename("/d/f", "/d/s/f")
    if is_synced:
        disk.sync_dir("/d/s")
    disk.mark("moved")

    moved_or_nothing: list[Tree] = [{"f": b"old"}, {"s": None, "s/f": b"old"}]
    not_yet: list[Tree] = [] if is_synced else [{"f": b"old", "s": None}]
    assert trees(disk, after="moved") == ordered(*moved_or_nothing, *not_yet)


def test_a_rename_synced_before_its_folder_is_durable_with_it() -> None:
    disk = SimDisk("/d", "/e")
    write(disk, "/e/f", b"x")
    disk.settle()
    disk.mkdir("/d/s")
    disk.rename("/e/f", "/d/s/f")
    disk.sync_dir("/d/s")
    disk.sync_dir("/d")
    disk.mark("synced")

    assert trees(disk, after="synced") == [{"/e": None, "s": None, "s/f": b"x"}]


def test_changes_of_different_names_have_no_order() -> None:
    disk = SimDisk("/d")
    write(disk, "/d/t", b"x")
    disk.settle()
    disk.link("/d/t", "/d/f")
    disk.remove("/d/t")

    assert trees(disk) == ordered({"t": b"x"}, {"t": b"x", "f": b"x"}, {"f": b"x"}, {})


def test_a_removed_file_may_come_back_until_its_folder_is_synced() -> None:
    disk = old_object()
    disk.remove("/d/f")
    disk.mark("removed")
    disk.sync_dir("/d")
    disk.mark("synced")

    assert trees(disk, after="removed") == ordered({"f": b"old"}, {}, {})
    assert trees(disk, after="synced") == [{}]


def test_a_hint_to_write_back_makes_nothing_durable() -> None:
    disk = SimDisk("/d")
    handle = disk.create("/d/f")
    disk.write(handle, b"new")
    disk.write_back(handle, 0, 3)
    disk.sync_dir("/d")
    disk.mark("hinted")

    assert {"f": b""} in trees(disk, after="hinted")


def test_what_survived_is_durable_and_can_be_cut_again() -> None:
    disk = SimDisk("/d")
    write(disk, "/d/f", b"x")
    survivor = next(survivor for _, survivor in crash_states(disk) if len(survivor.tree()) == 2)
    write(survivor, "/d/g", b"y")

    assert list(survivor.start.walk()) == [("/d", None), ("/d/f", b"")]
    assert trees(survivor) == ordered(
        {"f": b""}, {"f": b"", "g": b""}, {"f": b"", "g": b"y"}, {"f": b"", "g": b"\0"}
    )


def test_a_point_says_in_one_line_when_and_what() -> None:
    disk = old_object()
    replace(disk, sync=False, sync_dir=False)
    lines = {str(point).partition(": ")[2] for point, _ in crash_states(disk)}

    assert (
        "cut after operation 3 of 4 (rename /d/t -> /d/f); "
        "lost: write 3 bytes at 0 of /d/t (only the first 2)"
    ) in lines
    assert "cut after operation 4 of 4 (mark 'replaced') with 'replaced'; lost: nothing" in lines
    assert "cut after operation 0 of 4; lost: nothing" in lines


def test_effective_syncs_are_numbered_as_drop_counts_them() -> None:
    disk = SimDisk("/d")
    disk.sync_dir("/d")
    write(disk, "/d/f", b"x", synced=True)
    disk.sync_dir("/d")
    disk.sync_dir("/d")

    assert effective_syncs(disk) == {2: "sync /d/f", 3: "sync_dir /d"}


def many_writes() -> SimDisk:
    """Return a disk with far more pending changes than can be tried in all combinations."""
    disk = SimDisk("/d")
    for number in range(12):
        write(disk, f"/d/{number:02}", b"new")
    disk.mark("written")
    return disk


def kept_names(disk: SimDisk) -> Iterator[frozenset[str]]:
    for point, survivor in crash_states(disk):
        if point.marks:
            yield frozenset(_below(survivor))


def test_where_not_all_can_be_tried_the_choice_is_systematic() -> None:
    names = {f"{number:02}" for number in range(12)}
    states = set(kept_names(many_writes()))

    assert states >= {frozenset(names - {name}) for name in names}, "each lost alone"
    assert states >= {frozenset({name}) for name in names}, "each kept alone"
    assert states >= {frozenset(sorted(names)[:count]) for count in range(13)}, "every prefix"


def test_after_a_sync_all_is_tried_that_was_too_much_before() -> None:
    disk = SimDisk("/d")
    handles = [disk.create(f"/d/{name}") for name in "abc"]
    disk.settle()
    for handle in handles:
        disk.write(handle, b"x")
    disk.sync(handles[1])
    effort = Effort(combinations_max=9, samples=0)  # enough for two of the writes, not for three

    states = [_below(survivor) for _, survivor in crash_states(disk, effort)]
    assert {"a": b"\0", "b": b"x", "c": b"\0"} in states


def test_equal_logs_and_seeds_give_equal_states() -> None:
    def states(seed: int) -> list[tuple[int, str]]:
        effort = Effort(seed=seed)
        return [(point.state, str(point)) for point, _ in crash_states(many_writes(), effort)]

    assert states(seed=1) == states(seed=1)
    assert states(seed=1) != states(seed=2)


def test_more_effort_finds_all_that_less_effort_finds() -> None:
    def states(effort: Effort) -> set[int]:
        return {point.state for point, _ in crash_states(disk, effort)}

    disk = old_object()
    replace(disk, sync=False, sync_dir=False)
    disk.remove("/d/f")
    write(disk, "/d/g", b"new")
    everything = states(Effort(combinations_max=10**6))
    less = states(Effort(combinations_max=4, samples=4))

    assert less < everything

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.core.checkpoint.manifest import Contest, FileEntry, Manifest, Merged, Part, merge
from holdfast.errors import Damaged, FormatTooNew

MANIFEST = Manifest(
    run_id="r1",
    directory="checkpoint_000007",
    number=7,
    epoch=2,
    attempt=3,
    world_size=2,
    created=1700000000.5,
    algorithm="xxh3-128/16MiB",
    files=(FileEntry("model.pt", 10, "aa"), FileEntry("shards/1.bin", 0, "bb")),
    folders=("empty",),
    step=700,
    metrics={"loss": 0.5, "eval": {"acc": 0.9}},
)


def changed(**changes: Any) -> dict[str, Any]:
    return {**MANIFEST.to_record(), **changes}


# ---------------------------------------------------------------------------------- at rest


def test_a_manifest_survives_the_way_to_a_record_and_back() -> None:
    assert Manifest.from_record(MANIFEST.to_record()) == MANIFEST


def test_a_record_of_a_manifest_has_the_names_that_are_promised_to_plain_tools() -> None:
    assert MANIFEST.to_record() == {
        "format": 1,
        "run": "r1",
        "directory": "checkpoint_000007",
        "number": 7,
        "epoch": 2,
        "attempt": 3,
        "world_size": 2,
        "step": 700,
        "created": 1700000000.5,
        "metrics": {"loss": 0.5, "eval": {"acc": 0.9}},
        "digest": "xxh3-128/16MiB",
        "files": [["model.pt", 10, "aa"], ["shards/1.bin", 0, "bb"]],
        "folders": ["empty"],
    }


def test_the_size_of_a_checkpoint_is_that_of_all_its_files() -> None:
    assert MANIFEST.size == 10


OUTSIDE = ["../../etc/passwd", "/etc/passwd", "a/../../b", "a\x00b", "", "a//b", "x/" * 600 + "y"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_manifest_that_names_a_file_outside_its_folder_is_refused(path: str) -> None:
    with pytest.raises(Damaged, match="the manifest names the path"):
        Manifest.from_record(changed(files=[[path, 1, "aa"]]))


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_manifest_that_names_a_folder_outside_its_own_is_refused(path: str) -> None:
    with pytest.raises(Damaged, match="the manifest names the path"):
        Manifest.from_record(changed(folders=["fine", path]))


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_manifest_whose_own_folder_lies_outside_the_run_is_refused(path: str) -> None:
    with pytest.raises(Damaged, match="the manifest names the path"):
        Manifest.from_record(changed(directory=path))


def test_the_refusal_shows_the_path_and_the_rule() -> None:
    with pytest.raises(Damaged) as caught:
        Manifest.from_record(changed(files=[["../../etc/passwd", 1, "aa"]]))

    assert caught.value.message == (
        "the manifest names the path '../../etc/passwd': no part of it may be empty, '.' or '..'"
    )


@pytest.mark.parametrize("name", sorted(MANIFEST.to_record().keys() - {"format"}))
def test_a_manifest_that_lacks_a_field_is_refused(name: str) -> None:
    record = MANIFEST.to_record()
    del record[name]

    with pytest.raises(Damaged, match=name):
        Manifest.from_record(record)


@pytest.mark.parametrize(
    "changes",
    [
        {"files": [["model.pt", 10]]},
        {"files": [["model.pt", 10, "aa", "more"]]},
        {"files": [17]},
        {"files": None},
        {"folders": None},
        {"folders": [7]},
        {"directory": None},
    ],
    ids=str,
)
def test_a_manifest_of_another_shape_is_refused(changes: Mapping[str, Any]) -> None:
    with pytest.raises(Damaged):
        Manifest.from_record(changed(**changes))


def test_a_manifest_of_a_newer_format_is_refused_with_what_to_do() -> None:
    with pytest.raises(FormatTooNew) as caught:
        Manifest.from_record({"format": 2, "whatever": "it holds"})

    assert caught.value.message == "manifest format 2, this version reads up to 1"
    assert caught.value.hint == "use the version of Holdfast that wrote it, or a newer one"


# ---------------------------------------------------------------------------------- merging


def part(rank: int, *files: tuple[str, str], folders: tuple[str, ...] = ()) -> Part:
    return Part(rank, tuple(FileEntry(path, len(text), text) for path, text in files), folders)


def contents(merged: Merged) -> dict[str, str]:
    return {entry.path: entry.digest for entry in merged.files}


def test_files_of_all_ranks_become_one_folder_sorted_by_path() -> None:
    merged = merge([part(1, ("b", "B"), ("a/1", "A")), part(0, ("c", "C"))])

    assert [entry.path for entry in merged.files] == ["a/1", "b", "c"]
    assert merged.owners == {"c": 0, "b": 1, "a/1": 1}
    assert merged.contests == ()


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_of_files_with_one_path_the_lowest_rank_wins_whatever_the_order(order: list[int]) -> None:
    merged = merge(part(rank, ("model.pt", f"of rank {rank}")) for rank in order)

    assert contents(merged) == {"model.pt": "of rank 0"}
    assert merged.contests == (Contest("model.pt", winner=0, losers=(1, 2)),)


def test_equal_files_of_several_ranks_are_no_contest() -> None:
    merged = merge([part(0, ("model.pt", "same")), part(1, ("model.pt", "same"))])

    assert contents(merged) == {"model.pt": "same"}
    assert merged.owners == {"model.pt": 0}
    assert merged.contests == ()


def test_a_rank_that_agrees_is_no_loser_of_a_contest() -> None:
    merged = merge([part(0, ("m", "x")), part(1, ("m", "x")), part(2, ("m", "y"))])

    assert merged.contests == (Contest("m", winner=0, losers=(2,)),)


def test_files_of_one_size_with_different_digests_are_a_contest() -> None:
    merged = merge([part(0, ("m", "ab")), part(1, ("m", "ba"))])

    assert contents(merged) == {"m": "ab"}
    assert merged.contests == (Contest("m", winner=0, losers=(1,)),)


def test_the_winner_need_not_be_rank_zero() -> None:
    merged = merge([part(0), part(3, ("m", "y")), part(2, ("m", "x"))])

    assert merged.owners == {"m": 2}
    assert merged.contests == (Contest("m", winner=2, losers=(3,)),)


def test_a_file_of_a_lower_rank_wins_over_a_folder_of_the_same_name() -> None:
    merged = merge(
        [part(1, ("state/opt.bin", "O"), ("state/lr.bin", "L")), part(0, ("state", "S"))]
    )

    assert contents(merged) == {"state": "S"}
    assert merged.contests == (Contest("state", winner=0, losers=(1,)),)


def test_a_folder_of_a_lower_rank_wins_over_a_file_of_the_same_name() -> None:
    merged = merge([part(1, ("state", "S")), part(0, ("state/opt.bin", "O"))])

    assert contents(merged) == {"state/opt.bin": "O"}
    assert merged.contests == (Contest("state/opt.bin", winner=0, losers=(1,)),)


def test_a_file_clashes_with_a_folder_at_any_depth() -> None:
    merged = merge([part(0, ("a/b", "F")), part(1, ("a/b/c/d", "G"), ("a/x", "H"))])

    assert contents(merged) == {"a/b": "F", "a/x": "H"}
    assert merged.contests == (Contest("a/b", winner=0, losers=(1,)),)


def test_a_name_that_only_begins_alike_is_no_clash() -> None:
    merged = merge([part(0, ("state", "S")), part(1, ("state.bin", "T"), ("stat/e", "U"))])

    assert contents(merged) == {"state": "S", "state.bin": "T", "stat/e": "U"}
    assert merged.contests == ()


def test_empty_folders_are_kept_unless_a_file_lies_in_them() -> None:
    merged = merge(
        [part(0, ("a/x", "X"), folders=("b", "c/d")), part(1, ("b/y", "Y"), folders=("a", "e"))]
    )

    assert merged.folders == ("c/d", "e")


def test_empty_folders_are_kept_when_parts_come_from_a_generator() -> None:
    merged = merge(delivered for delivered in [part(0, ("a", "A"), folders=("empty",))])

    assert merged.folders == ("empty",)


def test_an_empty_folder_of_a_higher_rank_gives_way_to_a_file() -> None:
    merged = merge([part(0, ("logs", "L")), part(1, folders=("logs", "logs/deep"))])

    assert contents(merged) == {"logs": "L"}
    assert merged.folders == ()


def test_an_empty_folder_of_a_lower_rank_wins_over_a_file_of_the_same_name() -> None:
    """The lowest rank has its way here too: on a disk no file can be moved onto a folder."""
    merged = merge([part(0, ("a", "A"), folders=("logs",)), part(1, ("logs", "L"))])

    assert contents(merged) == {"a": "A"}
    assert merged.folders == ("logs",)
    assert merged.contests == (Contest("logs", winner=0, losers=(1,)),)


def test_no_parts_are_an_empty_checkpoint() -> None:
    merged = merge([])

    assert merged == Merged(files=(), owners={}, folders=(), contests=())

"""What a store on a local disk remembers about its folders: enough, and within a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.storage.local import store as local
from holdfast.storage.locate import child, describe, open_store, reopen


def remembered(store: local.LocalStore) -> int:
    return len(vars(store)["_durable"])


def test_no_more_folders_are_remembered_than_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "DURABLE_MAX", 20)
    store = local.LocalStore(tmp_path / "root")

    for number in range(100):
        store.put(f"trial-{number}/file", b"x")

    assert remembered(store) <= 20
    assert store.get("trial-0/file").data == b"x"


def test_with_a_folder_all_below_it_is_forgotten_however_much_was_forgotten_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in range(1, 12):
        monkeypatch.setattr(local, "DURABLE_MAX", room)
        store = local.LocalStore(tmp_path / f"room {room}")
        store.put("trial/deep/deeper/file", b"x")
        store.put("other/file", b"x")
        store.put("trial/deep/beside/file", b"x")

        store.delete_tree("trial")
        store.put("trial/deep/deeper/file", b"y")
        store.put("trial/deep/beside/file", b"y")

        assert (tmp_path / f"room {room}" / "trial" / "deep" / "beside" / "file").is_file()


def test_a_part_of_a_store_knows_what_the_whole_knows_also_in_another_process(
    tmp_path: Path,
) -> None:
    whole = local.LocalStore(tmp_path / "root")
    whole.put("a", b"")

    part = child(whole, "trial").local
    again = child(reopen(describe(whole)), "trial").local

    assert part is not None and again is not None
    assert remembered(part) == remembered(whole)
    assert remembered(again) == 1, "the root itself"
    assert not describe(open_store(tmp_path / "other"))["is_durable"]


def test_what_a_part_of_a_store_has_removed_is_made_again_by_the_whole(tmp_path: Path) -> None:
    whole = local.LocalStore(tmp_path)
    whole.keep_folder("trial/staging")
    part = whole.child("trial")

    part.discard_tree("staging")
    whole.keep_folder("trial/staging")

    assert (tmp_path / "trial" / "staging").is_dir()

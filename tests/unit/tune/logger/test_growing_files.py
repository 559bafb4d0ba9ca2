"""Shelves: each study has its own, whoever asks for it."""

from __future__ import annotations

from pathlib import Path

from holdfast.storage.locate import open_store
from holdfast.tune.logger.growing_files import shelf_on


def test_the_files_of_a_study_are_never_those_of_one_before_it(tmp_path: Path) -> None:
    """A store is known by its place in memory, which another may get once it is gone."""
    before = [shelf_on(open_store(tmp_path / f"study-{number}")) for number in range(50)]

    for number in range(50):
        store = open_store(tmp_path / f"later-{number}")
        assert shelf_on(store) not in before


def test_those_who_ask_for_the_same_store_share_a_shelf(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    assert shelf_on(store) is shelf_on(store)

"""Growing files: each study has its own, shared by all its loggers."""

from __future__ import annotations

from pathlib import Path

from holdfast.storage.locate import open_store
from holdfast.tune.logger.growing_files import growing_files_on


def test_the_files_of_a_study_are_never_those_of_one_before_it(tmp_path: Path) -> None:
    """A store is known by its place in memory, which another may get once it is gone."""
    before = [growing_files_on(open_store(tmp_path / f"study-{number}")) for number in range(50)]

    for number in range(50):
        store = open_store(tmp_path / f"later-{number}")
        assert growing_files_on(store) not in before


def test_callers_with_the_same_store_share_its_files(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    assert growing_files_on(store) is growing_files_on(store)

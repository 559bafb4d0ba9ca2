"""Folders for temporary files are this user's alone, whatever is there and whatever the umask."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.checkpoint.fetch import fetch_once, let_go
from holdfast.errors import ConfigError, StoreDenied, StoreError
from holdfast.storage import private_folders
from holdfast.storage.memory import MemoryStore
from holdfast.storage.private_folders import find_private_folder, make_private, private_folder
from holdfast.worker.spool import Spool

USUAL = f"holdfast-{os.geteuid()}"


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files as /tmp is: all can write, and it is sticky."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(top: Path) -> dict[str, int]:
    folders = [path for path in [top, *top.rglob("*")] if path.is_dir()]
    return {str(path.relative_to(top)): stat.S_IMODE(path.stat().st_mode) for path in folders}


def test_it_is_the_same_folder_every_time(shared: Path) -> None:
    assert find_private_folder("checkpoints") is None

    path = private_folder("checkpoints")

    assert path == str(shared / USUAL / "checkpoints")
    assert private_folder("checkpoints") == path
    assert find_private_folder("checkpoints") == path
    assert [entry.name for entry in shared.iterdir()] == [USUAL]


@pytest.mark.usefixtures("open_umask")
def test_with_an_open_umask_every_part_is_still_closed(shared: Path) -> None:
    fetch_once("copy", lambda folder: Path(folder, "weights").touch(), ())
    spool = Spool(MemoryStore(), "run", 1, 0)
    spool.new(1)
    let_go()

    made = modes(shared / USUAL)
    assert len(made) > 4
    assert {name: mode for name, mode in made.items() if mode & 0o077} == {}


@pytest.mark.usefixtures("open_umask")
def test_a_spool_that_another_rank_removes_again_and_again_stays_closed(shared: Path) -> None:
    ranks = [Spool(MemoryStore(), "run", 1, rank) for rank in (0, 1)]
    for index in range(1, 4):
        ranks[0].drop(ranks[0].new(index))
        folder = ranks[1].new(index)

        assert stat.S_IMODE(os.stat(os.path.dirname(folder)).st_mode) == 0o700
        ranks[1].drop(folder)


def plant_open_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def plant_group_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0o770)


def plant_link(path: Path) -> None:
    aim = path.with_name("aim")
    aim.mkdir(mode=0o700)  # private, but the owner of the link can move it elsewhere
    path.symlink_to(aim)


def plant_dangling_link(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def plant_file(path: Path) -> None:
    path.touch(mode=0o700)


PLANTS = [plant_open_folder, plant_group_folder, plant_link, plant_dangling_link, plant_file]


@pytest.mark.parametrize("plant", PLANTS)
def test_what_stands_there_and_is_not_ours_is_left_alone(
    plant: Callable[[Path], None], shared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plant(shared / USUAL)
    before = sorted(path.name for path in shared.iterdir())

    path = private_folder("checkpoints")

    root = Path(path).parent
    assert root.name.startswith(f"{USUAL}-")
    assert root.lstat().st_mode & 0o777 == 0o700
    assert private_folder("checkpoints") == path, "all processes of this user share it"
    assert find_private_folder("checkpoints") == path
    assert sorted(entry.name for entry in shared.iterdir() if entry != root) == before
    assert caplog.messages == [f"{shared / USUAL} belongs to another user; {root} is used instead"]


@pytest.mark.parametrize("plant", PLANTS)
def test_nor_is_a_second_one_whose_name_was_guessed(
    plant: Callable[[Path], None], shared: Path
) -> None:
    plant_file(shared / USUAL)
    plant(shared / f"{USUAL}-aaaaaaaa")

    assert Path(private_folder()).name != f"{USUAL}-aaaaaaaa"


@pytest.mark.parametrize("plant", PLANTS)
def test_a_part_that_is_not_ours_is_refused(plant: Callable[[Path], None], shared: Path) -> None:
    root = Path(private_folder())
    plant(root / "checkpoints")

    with pytest.raises(ConfigError, match="only this user can write to") as refused:
        private_folder("checkpoints")
    assert refused.value.hint == "remove it, or set TMPDIR to a folder of your own"
    assert find_private_folder("checkpoints") is None


def test_a_folder_that_cannot_be_made_is_an_error_of_storage(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreError, match="cannot make"):
        make_private(str(tmp_path / "file" / "below"))


def test_a_folder_for_temporary_files_that_is_gone_is_said(shared: Path) -> None:
    shared.rmdir()

    with pytest.raises(StoreError, match=f"cannot make {shared}/{USUAL}: No such file"):
        private_folder("checkpoints")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_for_temporary_files_that_is_read_only_is_said(shared: Path) -> None:
    shared.chmod(0o555)

    with pytest.raises(StoreDenied, match="cannot make"):
        private_folder()


def test_a_folder_that_others_can_replace_things_in_is_said_once(
    shared: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_folders, "_warned_of", set())
    private_folder()
    assert caplog.messages == [], "sticky is as it should be"

    monkeypatch.setattr(private_folders, "_warned_of", set())
    shared.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        private_folder()
        private_folder()

    assert len(caplog.messages) == 1
    assert f"can replace files in {shared}" in caplog.text


def test_without_any_folder_for_temporary_files_there_is_nothing_to_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", missing)

    assert find_private_folder("checkpoints") is None

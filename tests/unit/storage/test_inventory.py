"""Folders that user code has filled: their inventory, and that it is durable afterwards."""

from __future__ import annotations

from pathlib import Path

from holdfast.storage.local.disk import PosixDisk
from holdfast.storage.local.store import LocalStore
from holdfast.storage.transfer import take_stock
from tests.runs import save_files


class Recording(PosixDisk):
    """A disk that remembers which folders were synced."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def sync_dir(self, path: str) -> None:
        self.synced.append(path)
        super().sync_dir(path)


def test_every_name_on_the_way_to_a_file_is_durable(tmp_path: Path) -> None:
    """That of the folder itself is in the folder above, which its maker need not have synced."""
    save_files(tmp_path / "run" / "mine" / "first", {"a": b"1", "deep/b": b"2"})
    run, disk = tmp_path / "run", Recording()

    files, _ = take_stock(LocalStore(run, disk), "mine/first")

    assert [entry.path for entry in files] == ["a", "deep/b"]
    names = ("mine/first/deep", "mine/first", "mine", "")
    assert [path for path in disk.synced if path.startswith(str(run))] == [
        str(run / name) for name in names
    ]

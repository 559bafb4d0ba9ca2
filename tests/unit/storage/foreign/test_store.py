"""Filesystems of users: how their failures are reported, and that no put is left half done."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from holdfast.errors import (
    Conflict,
    ObjectMissing,
    StoreBusy,
    StoreDenied,
    StoreError,
    StoreForked,
    StoreFull,
)
from holdfast.storage.base import IF_ABSENT
from holdfast.storage.foreign.filesystems import FsspecFilesystem
from holdfast.storage.foreign.store import ForeignStore
from holdfast.testing.sources import Refilled


class Failing(LocalFileSystem):  # type: ignore[misc]  # fsspec is not typed
    """A filesystem whose every operation raises `error`, once it is set."""

    protocol = "failing"
    cachable = False
    error: BaseException | None = None

    def info(self, path: str, **kwargs: Any) -> Any:
        self.check()
        return super().info(path, **kwargs)

    def open(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self.check()
        return super().open(path, *args, **kwargs)

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self.check()
        return super().find(path, *args, **kwargs)

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        self.check()
        super().mv(path1, path2, **kwargs)

    def check(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture
def filesystem() -> Failing:
    return Failing()


@pytest.fixture
def store(filesystem: Failing, tmp_path: Path) -> ForeignStore:
    return ForeignStore(FsspecFilesystem(filesystem), str(tmp_path / "top"))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("gone"), ObjectMissing),
        (PermissionError(errno.EACCES, "denied"), StoreDenied),
        (OSError("When reading: AWS Error ACCESS_DENIED during GetObject"), StoreDenied),
        (OSError("When reading: AWS Error NETWORK_CONNECTION: curlCode: 7"), StoreBusy),
        (OSError("When writing: AWS Error SLOW_DOWN during PutObject"), StoreBusy),
        (ConnectionResetError(errno.ECONNRESET, "reset"), StoreBusy),
        (TimeoutError("too long"), StoreBusy),
        (OSError(errno.ENOSPC, "no space left"), StoreFull),
        (OSError(errno.EIO, "input/output error"), StoreBusy),
        (OSError(errno.EINVAL, "invalid argument"), StoreError),
        (RuntimeError("This class is not fork-safe"), StoreForked),
        (KeyError("whatever a filesystem may think of"), StoreError),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_failure_comes_out_as_one_of_ours(
    store: ForeignStore, filesystem: Failing, error: Exception, kind: type[StoreError]
) -> None:
    store.put("a", b"1")
    filesystem.error = error

    with pytest.raises(StoreError) as caught:
        store.get("a")

    assert type(caught.value) is kind
    assert "/top/a" in caught.value.message
    assert caught.value.key == "a"


def test_every_operation_explains_its_failure(store: ForeignStore, filesystem: Failing) -> None:
    filesystem.error = KeyError("odd")

    for work in (
        lambda: store.stat("a"),
        lambda: store.put("a", b"1"),
        lambda: store.put("a", b"1", IF_ABSENT),
        lambda: store.delete("a"),
        lambda: list(store.entries()),
        lambda: store.write_tree("t").write("a", Refilled(10)),
        lambda: store.probe(writable=True),
    ):
        with pytest.raises(StoreError, match="KeyError: 'odd'"):
            work()


def test_a_put_that_fails_leaves_the_old_object_and_no_litter(
    store: ForeignStore, filesystem: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(filesystem, "mv", _fail)
        with pytest.raises(StoreFull):
            store.put("a", b"new")

    assert store.get("a").data == b"old"
    assert list(store.litter()) == []


def _fail(*args: object) -> None:
    raise OSError(errno.ENOSPC, "no space left")


def test_what_a_dead_writer_left_is_litter_and_not_an_object(
    store: ForeignStore, tmp_path: Path
) -> None:
    store.put("folder/a", b"1")
    (tmp_path / "top" / "folder" / ".0123.hf-tmp").write_bytes(b"half")

    [litter] = store.litter()

    assert [entry.key for entry in store.entries()] == ["folder/a"]
    assert (litter.key, litter.size) == ("folder/.0123.hf-tmp", 4)
    store.delete_litter(litter)
    assert list(store.litter()) == []


def test_a_write_that_breaks_off_is_thrown_away(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half of it"
        raise LookupError

    target = tmp_path / "file"

    with pytest.raises(LookupError):
        FsspecFilesystem(Failing()).write(str(target), chunks())

    assert not target.exists()


def test_a_file_where_the_root_should_be_is_refused(store: ForeignStore, tmp_path: Path) -> None:
    (tmp_path / "top").write_bytes(b"")

    with pytest.raises(StoreError, match="is a file, not a folder"):
        store.probe(writable=False)


def test_conditions_hold_among_the_puts_of_one_process(store: ForeignStore) -> None:
    store.put("a", b"1", IF_ABSENT)

    with pytest.raises(Conflict):
        store.put("a", b"2", IF_ABSENT)
    assert not store.fences

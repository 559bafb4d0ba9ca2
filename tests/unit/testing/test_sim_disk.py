"""`SimDisk` by itself; that it agrees with a real disk is shown in tests/property."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from holdfast.testing.disk import SimDisk


def write(disk: SimDisk, path: str, data: bytes) -> None:
    handle = disk.create(path)
    disk.write(handle, data)
    disk.close(handle)


def read(disk: SimDisk, handle: int, size: int = 100) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: disk.read_into(handle, memoryview(buffer), 0)])


def test_folders_given_at_the_start_are_there_and_leave_no_log() -> None:
    disk = SimDisk("/sim/run", "/other")

    assert disk.tree() == {"/other": None, "/sim": None, "/sim/run": None}
    assert list(disk.log) == []


def test_every_change_is_in_the_log_in_order() -> None:
    disk = SimDisk("/d")
    handle = disk.create("/d/a")
    disk.write(handle, b"abc")
    disk.write_back(handle, 0, 3)
    disk.truncate(handle, 2)
    disk.sync(handle)
    disk.close(handle)
    disk.link("/d/a", "/d/b")
    disk.rename("/d/b", "/d/c")
    disk.mark("halfway")
    disk.remove("/d/a")
    disk.mkdir("/d/e")
    disk.rmdir("/d/e")
    disk.sync_dir("/d")

    assert [str(operation) for operation in disk.log] == [
        "create /d/a",
        "write 3 bytes at 0 of /d/a",
        "truncate /d/a to 2 bytes",
        "sync /d/a",
        "link /d/a -> /d/b",
        "rename /d/b -> /d/c",
        "mark 'halfway'",
        "remove /d/a",
        "mkdir /d/e",
        "rmdir /d/e",
        "sync_dir /d",
    ]
    assert disk.tree() == {"/d": None, "/d/c": b"ab"}


def test_what_failed_or_changed_nothing_is_not_in_the_log() -> None:
    disk = SimDisk("/d")
    write(disk, "/d/a", b"")
    disk.link("/d/a", "/d/b")
    before = len(disk.log)
    with pytest.raises(FileExistsError):
        disk.create("/d/a")
    disk.rename("/d/a", "/d/b")

    assert len(disk.log) == before
    assert disk.tree() == {"/d": None, "/d/a": b"", "/d/b": b""}


def test_linked_names_share_their_bytes() -> None:
    disk = SimDisk()
    write(disk, "/a", b"one")
    disk.link("/a", "/b")
    handle = disk.open_append("/b")
    disk.write(handle, b" two")

    assert disk.tree() == {"/a": b"one two", "/b": b"one two"}


def test_an_open_file_outlives_its_name() -> None:
    disk = SimDisk()
    write(disk, "/a", b"old")
    handle = disk.open("/a")
    write(disk, "/b", b"new")
    disk.rename("/b", "/a")

    assert read(disk, handle) == b"old"
    assert disk.tree() == {"/a": b"new"}


def test_a_write_behind_the_end_leaves_zeros() -> None:
    disk = SimDisk()
    handle = disk.create("/a")
    disk.write(handle, b"abc")
    disk.truncate(handle, 1)
    disk.write(handle, b"d")

    assert disk.tree() == {"/a": b"a\0\0d"}


FAILURES = [
    ("create", ["/d"], errno.EEXIST),
    ("create", ["/none/f"], errno.ENOENT),
    ("create", ["/d/file/f"], errno.ENOTDIR),
    ("create", ["/d/" + "\u00fc" * 128], errno.ENAMETOOLONG),
    ("create", ["/" + "x/" * 2048], errno.ENAMETOOLONG),
    ("open", ["/d/none"], errno.ENOENT),
    ("open_append", ["/d"], errno.EISDIR),
    ("link", ["/d/full", "/d/l"], errno.EPERM),
    ("link", ["/d/file", "/d/full"], errno.EEXIST),
    ("rename", ["/d/none", "/d/x"], errno.ENOENT),
    ("rename", ["/d/file", "/d/full"], errno.EISDIR),
    ("rename", ["/d/full", "/d/file"], errno.ENOTDIR),
    ("rename", ["/d/empty", "/d/full"], errno.ENOTEMPTY),
    ("rename", ["/d", "/d/full/d"], errno.EINVAL),
    ("rename", ["/d/full/f", "/d"], errno.ENOTEMPTY),
    ("remove", ["/d/none"], errno.ENOENT),
    ("remove", ["/d/empty"], errno.EISDIR),
    ("rmdir", ["/d/full"], errno.ENOTEMPTY),
    ("rmdir", ["/d/file"], errno.ENOTDIR),
    ("rmdir", ["/"], errno.EBUSY),
    ("mkdir", ["/"], errno.EEXIST),
    ("sync_dir", ["/d/file"], errno.ENOTDIR),
    ("scan", ["/d/file"], errno.ENOTDIR),
]


@pytest.mark.parametrize(
    ("verb", "paths", "code"),
    FAILURES,
    ids=[f"{verb} {' '.join(paths)[:20]}" for verb, paths, _ in FAILURES],
)
def test_errors_are_those_of_the_kernel(verb: str, paths: list[str], code: int) -> None:
    disk = SimDisk("/d/full", "/d/empty")
    write(disk, "/d/file", b"")
    write(disk, "/d/full/f", b"")
    before = disk.tree()

    with pytest.raises(OSError, match=os.strerror(code)) as caught:
        getattr(disk, verb)(*paths)

    assert caught.value.errno == code
    assert disk.tree() == before


def test_a_handle_does_only_what_it_was_opened_for() -> None:
    disk = SimDisk("/d")
    write(disk, "/f", b"x")
    reading, writing, folder = disk.open("/f"), disk.open_append("/f"), disk.open("/d")
    disk.close(disk.open("/f"))

    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.write(reading, b"y")
    with pytest.raises(OSError, match="Invalid argument"):
        disk.truncate(reading, 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        read(disk, writing)
    with pytest.raises(IsADirectoryError):
        read(disk, folder)
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.close(folder + 1)


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/nul\0"])
def test_paths_it_cannot_follow_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"absolute paths|null byte"):
        SimDisk().stat(path)


def test_a_lock_is_held_by_one_and_left_behind_as_a_file() -> None:
    disk = SimDisk()
    with disk.lock("/l", 1.0), pytest.raises(BlockingIOError), disk.lock("/l", 0.0):
        pass
    with disk.lock("/l", 0.0):
        pass

    assert [str(operation) for operation in disk.log] == ["create /l"]


def test_a_disk_made_from_an_image_leaves_the_image_alone() -> None:
    first = SimDisk("/d")
    write(first, "/d/a", b"one")
    image = first.image()
    second = SimDisk(image=image)
    second.write(second.open_append("/d/a"), b" two")
    second.mkdir("/d/e")
    first.remove("/d/a")

    assert dict(image.walk()) == {"/d": None, "/d/a": b"one"}
    assert second.tree() == {"/d": None, "/d/a": b"one two", "/d/e": None}
    assert first.tree() == {"/d": None}


def test_the_clock_tells_when_a_file_was_modified() -> None:
    now = [10.0]
    disk = SimDisk("/d", clock=lambda: now[0])
    write(disk, "/d/a", b"")
    now[0] = 20.0
    disk.write(disk.open_append("/d/a"), b"x")

    status = disk.stat("/d/a")
    assert status is not None and (status.modified, status.size) == (20.0, 1)


def test_threads_lose_no_operation() -> None:
    disk = SimDisk()
    write(disk, "/a", b"")

    def append() -> None:
        handle = disk.open_append("/a")
        for _ in range(200):
            disk.write(handle, b"x")

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert disk.tree() == {"/a": b"x" * 800}
    assert len(disk.log) == 801

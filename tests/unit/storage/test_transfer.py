from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core.checkpoint.manifest import FileEntry
from holdfast.errors import ConfigError, Damaged, HoldfastError, TransferCancelled
from holdfast.storage import digest, transfer, verify
from holdfast.storage.base import Store
from holdfast.storage.digest import digest_bytes
from holdfast.storage.local.store import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.parallel import Progress, Watch
from holdfast.storage.transfer import download_tree, upload_files, upload_tree
from holdfast.storage.verify import damage_of

FILES = {
    "model.pt": b"weights" * 100,
    "empty": b"",
    "shards/0/a.bin": b"\x00\xff" * 50,
    "shards/1/a.bin": b"\x01" * 100,
    "größe … 'x'.txt": b"unicode",
}


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "store") if request.param == "local" else MemoryStore()


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 64 bytes, so that files of several blocks cost nothing."""
    monkeypatch.setattr(digest, "BLOCK_BYTES", 64)


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "THREADS_LOCAL", 1)
    monkeypatch.setattr(transfer, "THREADS_REMOTE", 1)
    monkeypatch.setattr(verify, "THREADS_REMOTE", 1)
    monkeypatch.setattr(verify, "THREADS_VERIFY", 1)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return written(tmp_path / "source", FILES)


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def stored(store: Store, prefix: str) -> dict[str, bytes]:
    return {
        entry.key.removeprefix(f"{prefix}/"): store.get(entry.key).data
        for entry in store.entries(prefix)
    }


# ---------------------------------------------------------------------------------- there


def test_a_folder_is_stored_as_it_is_with_the_digest_of_every_file(
    store: Store, source: Path
) -> None:
    files, folders = upload_tree(store, source, "c1")

    assert stored(store, "c1") == FILES
    assert folders == ()
    assert files == tuple(
        FileEntry(name, len(FILES[name]), digest_bytes(FILES[name])) for name in sorted(FILES)
    )


def test_empty_folders_are_named_and_those_with_files_are_not(store: Store, source: Path) -> None:
    (source / "logs" / "deep").mkdir(parents=True)

    _, folders = upload_tree(store, source, "c1")

    assert folders == ("logs/deep",)


def test_an_empty_folder_is_a_checkpoint_without_files(store: Store, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()

    assert upload_tree(store, tmp_path / "nothing", "c1") == ((), ())


def test_links_to_files_and_folders_are_followed(store: Store, tmp_path: Path) -> None:
    elsewhere = written(tmp_path / "elsewhere", {"w.bin": b"far"})
    source = written(tmp_path / "linked", {"a": b"near"})
    (source / "file").symlink_to(elsewhere / "w.bin")
    (source / "folder").symlink_to(elsewhere)

    upload_tree(store, source, "c1")

    assert stored(store, "c1") == {"a": b"near", "file": b"far", "folder/w.bin": b"far"}


def test_only_the_named_files_are_stored_over_what_is_there(store: Store, source: Path) -> None:
    store.put("c1/model.pt", b"of another rank")
    store.put("c1/empty", b"not empty")

    upload_files(store, source, "c1", ["model.pt", "unheard of"])

    assert stored(store, "c1") == {"model.pt": FILES["model.pt"], "empty": b"not empty"}


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.write_bytes(b"x"), "is not a folder"),
    ],
    ids=["missing", "a file"],
)
def test_a_source_that_is_no_folder_is_refused(
    store: Store, tmp_path: Path, make: Callable[[Path], None], complaint: str
) -> None:
    make(tmp_path / "ckpt")

    with pytest.raises(ConfigError, match=complaint) as caught:
        upload_tree(store, tmp_path / "ckpt", "c1")

    assert "ckpt" in caught.value.message
    assert list(store.entries()) == []


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda at: os.mkfifo(at / "pipe"), "pipe is not a regular file"),
        (lambda at: (at / "gone").symlink_to(at / "nowhere"), "cannot read .*gone: No such file"),
        (lambda at: (at / "me").symlink_to(at), "me.*: Too many levels of symbolic links"),
        (lambda at: os.close(os.open(os.fsencode(at) + b"/\xff", os.O_CREAT)), "not valid Unicode"),
        (lambda at: os.makedirs(at.joinpath(*["x" * 200] * 6)), "at most 1000 bytes"),
    ],
    ids=["a pipe", "a broken link", "a link to itself", "no Unicode", "a path too long"],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_sent(
    store: Store, source: Path, make: Callable[[Path], None], complaint: str
) -> None:
    make(source)

    with pytest.raises(ConfigError, match=complaint):
        upload_tree(store, source, "c1")

    assert list(store.entries()) == []


@pytest.mark.usefixtures("one_thread")
def test_a_file_that_grows_while_it_is_saved_is_refused(store: Store, tmp_path: Path) -> None:
    source = written(tmp_path / "s", {"large": b"x" * 100, "small": b"y"})

    def grow(progress: Progress) -> None:
        if not progress.files_done:
            (source / "small").write_bytes(b"yy")

    with pytest.raises(ConfigError) as caught:
        upload_tree(store, source, "c1", Watch(grow))

    assert caught.value.message == (
        f"{source}/small changed while it was being saved: 1 bytes before, 2 read"
    )


@pytest.mark.usefixtures("one_thread")
def test_a_file_that_vanishes_while_it_is_saved_is_named(store: Store, tmp_path: Path) -> None:
    """The source is at fault, so the error names the source, not the store."""
    source = written(tmp_path / "s", {"large": b"x" * 100, "small": b"y"})

    def remove(_: Progress) -> None:
        (source / "small").unlink(missing_ok=True)

    with pytest.raises(HoldfastError) as caught:
        upload_tree(store, source, "c1", Watch(remove))

    assert str(source / "small") in caught.value.message


# ---------------------------------------------------------------------------------- and back


@pytest.mark.usefixtures("short_blocks")
def test_what_was_stored_comes_back_as_it_was(store: Store, source: Path, tmp_path: Path) -> None:
    (source / "logs").mkdir()
    files, folders = upload_tree(store, source, "c1")

    download_tree(store, "c1", files, tmp_path / "back", folders=folders)

    assert contents(tmp_path / "back") == FILES
    assert (tmp_path / "back" / "logs").is_dir()


def test_a_whole_store_can_be_brought_back_without_a_prefix(store: Store, tmp_path: Path) -> None:
    store.put("a/b", b"data")

    download_tree(store, "", [FileEntry("a/b", 4, digest_bytes(b"data"))], tmp_path / "back")

    assert contents(tmp_path / "back") == {"a/b": b"data"}


def test_a_file_that_is_there_already_is_replaced(
    store: Store, source: Path, tmp_path: Path
) -> None:
    files, _ = upload_tree(store, source, "c1")
    written(tmp_path / "back", {"empty": b"full", "model.pt": b"longer" * 1000})

    download_tree(store, "c1", files, tmp_path / "back")

    assert contents(tmp_path / "back") == FILES


def test_only_named_files_are_brought_back(store: Store, source: Path, tmp_path: Path) -> None:
    files, _ = upload_tree(store, source, "c1")
    store.put("c1/stranger", b"x")

    download_tree(store, "c1", files[:1], tmp_path / "back")

    assert list(contents(tmp_path / "back")) == [files[0].path]


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("at", [0, 63, 64, 699])
def test_a_flipped_byte_in_any_block_is_noticed_on_the_way_back(
    store: Store, source: Path, tmp_path: Path, at: int
) -> None:
    files, _ = upload_tree(store, source, "c1")
    data = bytearray(FILES["model.pt"])
    data[at] ^= 1
    store.put("c1/model.pt", bytes(data))

    with pytest.raises(Damaged, match=r"model\.pt does not match its digest"):
        download_tree(store, "c1", files, tmp_path / "back")


def test_a_file_that_is_gone_or_short_is_noticed_on_the_way_back(
    store: Store, source: Path, tmp_path: Path
) -> None:
    files, _ = upload_tree(store, source, "c1")
    store.delete("c1/shards/0/a.bin")
    store.put("c1/model.pt", FILES["model.pt"][:-1])

    with pytest.raises(Damaged) as caught:
        download_tree(store, "c1", files, tmp_path / "back")

    assert "shards/0/a.bin is missing" in caught.value.message
    assert "model.pt does not match its digest" in caught.value.message


@pytest.mark.parametrize("blocked", ["back", "back/shards"])
def test_a_target_that_cannot_be_written_is_named(
    store: Store, source: Path, tmp_path: Path, blocked: str
) -> None:
    files, _ = upload_tree(store, source, "c1")
    written(tmp_path, {blocked: b"a file where a folder should be"})

    with pytest.raises(HoldfastError) as caught:
        download_tree(store, "c1", files, tmp_path / "back")

    assert str(tmp_path / blocked) in caught.value.message


# ---------------------------------------------------------------------------------- verifying


def test_nothing_is_wrong_with_what_was_just_stored(store: Store, source: Path) -> None:
    files, _ = upload_tree(store, source, "c1")

    assert damage_of(store, "c1", files) == []


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (None, "model.pt is missing"),
        (b"", "model.pt has 0 bytes, 700 were saved"),
        (FILES["model.pt"][:-1], "model.pt has 699 bytes, 700 were saved"),
        (FILES["model.pt"] + b"x", "model.pt has 701 bytes, 700 were saved"),
        (b"W" + FILES["model.pt"][1:], "model.pt does not match its digest"),
        (FILES["model.pt"][:-1] + b"S", "model.pt does not match its digest"),
        (FILES["model.pt"][::-1], "model.pt does not match its digest"),
    ],
    ids=["gone", "emptied", "short", "long", "first byte", "last byte", "reversed"],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(
    store: Store, source: Path, changed: bytes | None, problem: str
) -> None:
    files, _ = upload_tree(store, source, "c1")
    if changed is None:
        store.delete("c1/model.pt")
    else:
        store.put("c1/model.pt", changed)

    assert damage_of(store, "c1", files) == [problem]


def test_files_swapped_with_each_other_are_noticed(store: Store, source: Path) -> None:
    files, _ = upload_tree(store, source, "c1")
    store.put("c1/shards/0/a.bin", FILES["shards/1/a.bin"])
    store.put("c1/shards/1/a.bin", FILES["shards/0/a.bin"])

    assert damage_of(store, "c1", files) == [
        "shards/0/a.bin does not match its digest",
        "shards/1/a.bin does not match its digest",
    ]


def test_blocks_swapped_with_each_other_are_noticed(
    store: Store, tmp_path: Path, short_blocks: None
) -> None:
    source = written(tmp_path / "s", {"two": b"a" * 64 + b"b" * 64})
    files, _ = upload_tree(store, source, "c1")
    store.put("c1/two", b"b" * 64 + b"a" * 64)

    assert damage_of(store, "c1", files) == ["two does not match its digest"]


def test_a_folder_in_the_place_of_a_file_is_damage(tmp_path: Path, source: Path) -> None:
    store = LocalStore(tmp_path / "store")
    files, _ = upload_tree(store, source, "c1")
    store.delete("c1/model.pt")
    store.put("c1/model.pt/inside", b"x")

    assert damage_of(store, "c1", files) == ["model.pt is missing"]


# ---------------------------------------------------------------------------------- watching

Transfer = Callable[[Store, Path, Watch], object]


def _up(store: Store, source: Path, watch: Watch) -> None:
    upload_tree(store, source, "watched", watch)


def _down(store: Store, source: Path, watch: Watch) -> None:
    files, _ = upload_tree(store, source, "c1")
    download_tree(store, "c1", files, source.parent / "back", watch=watch)


def _verify(store: Store, source: Path, watch: Watch) -> None:
    files, _ = upload_tree(store, source, "c1")
    damage_of(store, "c1", files, watch)


@pytest.mark.parametrize("transfer_one_way", [_up, _down, _verify])
def test_progress_only_grows_and_ends_where_it_said_it_would(
    store: Store, source: Path, transfer_one_way: Transfer
) -> None:
    seen: list[tuple[int, int]] = []
    totals: set[tuple[int, int]] = set()

    def see(progress: Progress) -> None:
        seen.append((progress.bytes_done, progress.files_done))
        totals.add((progress.bytes_total, progress.files_total))

    transfer_one_way(store, source, Watch(see))

    assert totals == {(907, 5)}
    assert seen == sorted(seen)
    assert seen[-1] == (907, 5)


@pytest.mark.parametrize("transfer_one_way", [_up, _down, _verify])
def test_a_transfer_that_is_called_off_says_so(
    store: Store, source: Path, transfer_one_way: Transfer
) -> None:
    cancel = threading.Event()
    watch = Watch(lambda progress: cancel.set(), cancel)

    with pytest.raises(TransferCancelled, match="was cancelled"):
        transfer_one_way(store, source, watch)

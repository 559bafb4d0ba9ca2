"""The public Checkpoint: on local folders, in memory, committed and not."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.fs
import pytest

import holdfast
from holdfast.checkpoint import Checkpoint
from holdfast.checkpoint.fetch import let_go
from holdfast.checkpoint.manifests import manifest_key
from holdfast.control.record.open_run import open_run
from holdfast.errors import ConfigError, Damaged, FormatTooNew, StoreError
from holdfast.storage.locate import open_store
from holdfast.storage.records import seal, unseal
from tests.runs import commit, save_files


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_files(tmp_path / "saved", {"model.pt": b"weights", "inner/config": b"{}"})


def contents(folder: str) -> dict[str, bytes]:
    top = Path(folder)
    return {
        str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()
    }


def test_it_is_found_where_users_look_for_it() -> None:
    assert holdfast.Checkpoint is Checkpoint


@pytest.mark.req("T-056", "T-057")
def test_a_local_folder_is_given_as_it_is_without_a_copy(saved: Path) -> None:
    checkpoint = Checkpoint.from_directory(saved)

    with checkpoint.as_directory() as folder:
        assert folder == str(saved)
    assert contents(str(saved)) == {"model.pt": b"weights", "inner/config": b"{}"}


@pytest.mark.req("T-056")
def test_to_directory_copies_the_files_where_asked(saved: Path, tmp_path: Path) -> None:
    target = Checkpoint.from_directory(saved).to_directory(tmp_path / "new" / "place")

    assert target == str(tmp_path / "new" / "place")
    assert contents(target) == contents(str(saved))


def test_to_directory_without_a_place_copies_even_a_local_folder(saved: Path) -> None:
    target = Checkpoint.from_directory(saved).to_directory()

    assert target != str(saved)
    assert contents(target) == contents(str(saved))
    let_go()


@pytest.mark.req("T-056", "T-057")
def test_a_remote_folder_is_copied_to_this_machine(saved: Path) -> None:
    commit("memory://unit/remote", saved)
    checkpoint = Checkpoint("memory://unit/remote/checkpoint_000000")

    with checkpoint.as_directory() as folder:
        assert Path(folder).is_dir()
        assert contents(folder) == contents(str(saved))
    assert not Path(folder).exists()


@pytest.mark.req("T-058", "T-059")
def test_two_objects_of_one_committed_checkpoint_share_its_copy(saved: Path) -> None:
    commit("memory://unit/shared", saved)

    with (
        Checkpoint("memory://unit/shared/checkpoint_000000").as_directory() as first,
        Checkpoint("memory://unit/shared/checkpoint_000000").as_directory() as other,
    ):
        assert first == other
    let_go()


def test_a_remote_folder_that_no_run_committed_is_shared_by_copies_of_the_object(
    saved: Path,
) -> None:
    store = open_store("memory://unit/plain")
    store.put("model.pt", b"weights")
    checkpoint = Checkpoint("memory://unit/plain")
    travelled = pickle.loads(pickle.dumps(checkpoint))

    with checkpoint.as_directory() as first, travelled.as_directory() as other:
        assert first == other
        assert contents(first) == {"model.pt": b"weights"}
    with Checkpoint("memory://unit/plain").as_directory() as third:
        assert third != first, "its files may have changed, so another object fetches anew"
    let_go()


def test_a_damaged_remote_checkpoint_is_never_given(saved: Path) -> None:
    commit("memory://unit/damaged", saved)
    open_store("memory://unit/damaged").put("checkpoint_000000/model.pt", b"weighTs")
    checkpoint = Checkpoint("memory://unit/damaged/checkpoint_000000")

    with pytest.raises(Damaged, match=r"model\.pt does not match"), checkpoint.as_directory():
        raise AssertionError("given")
    let_go()


def test_it_travels_light(saved: Path) -> None:
    checkpoint = Checkpoint.from_directory(saved)
    checkpoint.get_metadata()  # opens the store

    assert len(pickle.dumps(checkpoint)) < 500 + len(str(saved))
    assert pickle.loads(pickle.dumps(checkpoint)).path == checkpoint.path


def test_copies_are_equal_only_to_themselves(saved: Path) -> None:
    checkpoint = Checkpoint.from_directory(saved)

    assert checkpoint == checkpoint
    assert pickle.loads(pickle.dumps(checkpoint)) != checkpoint


def test_metadata_before_the_commit_is_one_of_the_files(saved: Path) -> None:
    checkpoint = Checkpoint.from_directory(saved)
    assert checkpoint.get_metadata() == {}

    checkpoint.set_metadata({"epoch": 3})
    checkpoint.update_metadata({"best": True})

    assert checkpoint.get_metadata() == {"epoch": 3, "best": True}
    assert (saved / ".metadata.json").read_text() == '{"epoch": 3, "best": true}'


def test_metadata_after_the_commit_leaves_the_files_as_the_manifest_names_them(
    saved: Path, tmp_path: Path
) -> None:
    Checkpoint.from_directory(saved).set_metadata({"epoch": 3})
    run = tmp_path / "run"
    commit(run, saved)
    checkpoint = Checkpoint(run / "checkpoint_000000")
    before = contents(checkpoint.path)

    checkpoint.update_metadata({"score": 0.5})

    assert Checkpoint(run / "checkpoint_000000").get_metadata() == {"epoch": 3, "score": 0.5}
    assert contents(checkpoint.path) == before


def test_metadata_that_is_not_json_is_refused(saved: Path) -> None:
    with pytest.raises(ConfigError, match="expressible as JSON"):
        Checkpoint.from_directory(saved).set_metadata({"model": object()})


def test_path_and_filesystem_are_as_pyarrow_has_them(saved: Path) -> None:
    checkpoint = Checkpoint.from_directory(saved)

    assert checkpoint.path == str(saved)
    with checkpoint.filesystem.open_input_file(f"{checkpoint.path}/model.pt") as file:
        assert file.read() == b"weights"
    remote = Checkpoint("s3://bucket/run/checkpoint_000001?region=eu-west-1")
    assert remote.path == "bucket/run/checkpoint_000001"
    assert isinstance(remote.filesystem, pyarrow.fs.S3FileSystem)


def test_a_filesystem_that_is_given_is_used(saved: Path, tmp_path: Path) -> None:
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe({"/given/ckpt/model.pt": b"weights"})
    checkpoint = Checkpoint("/given/ckpt", filesystem)

    assert checkpoint.filesystem is filesystem
    assert contents(checkpoint.to_directory(tmp_path / "copy")) == {"model.pt": b"weights"}


def test_a_relative_path_means_the_same_from_everywhere(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved.parent)
    checkpoint = Checkpoint("saved")
    monkeypatch.chdir("/")

    with checkpoint.as_directory() as folder:
        assert folder == str(saved)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    checkpoint = Checkpoint.from_directory(tmp_path / "nowhere")

    for target in (None, tmp_path / "copy"):
        with pytest.raises(ConfigError, match="nowhere does not exist"):
            checkpoint.to_directory(target)
    assert not (tmp_path / "copy").exists()
    with pytest.raises(ConfigError, match="nowhere does not exist"), checkpoint.as_directory():
        raise AssertionError("given")
    with pytest.raises(ConfigError, match="no checkpoint at memory://unit/nothing"):
        Checkpoint("memory://unit/nothing").to_directory()


def test_names_of_older_eras_say_what_to_use_instead(saved: Path) -> None:
    checkpoint = Checkpoint.from_directory(saved)

    with pytest.raises(AttributeError, match="as_directory"):
        checkpoint.to_dict()
    with pytest.raises(TypeError, match="as_directory"):
        open(checkpoint)  # noqa: SIM115
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        checkpoint.nonsense  # noqa: B018


def test_a_manifest_that_was_changed_is_refused(saved: Path) -> None:
    commit("memory://unit/changed", saved)
    store = open_store("memory://unit/changed")
    key = manifest_key("checkpoint_000000")
    store.put(key, store.get(key).data.replace(b"model.pt", b"model.pu"))

    with pytest.raises(Damaged, match="checksum"):
        Checkpoint("memory://unit/changed/checkpoint_000000").to_directory()


def test_digests_of_an_unknown_kind_are_not_taken_for_damage(saved: Path, tmp_path: Path) -> None:
    commit(tmp_path / "run", saved)
    path = tmp_path / "run" / manifest_key("checkpoint_000000")
    record = {**unseal(path.read_bytes().removesuffix(b"\n")), "digest": "blake9"}
    path.write_bytes(seal(record) + b"\n")

    with open_run(open_store(tmp_path / "run")) as run, pytest.raises(FormatTooNew, match="blake9"):
        run.newest_good()


def test_a_file_is_not_taken_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("x")
    checkpoint = Checkpoint.from_directory(tmp_path / "model.pt")

    with pytest.raises(ConfigError, match=r"model.pt is a file"), checkpoint.as_directory():
        pass


def test_metadata_is_a_dictionary(saved: Path) -> None:
    with pytest.raises(ConfigError, match=r"metadata=\[1\] is not a dictionary"):
        Checkpoint.from_directory(saved).set_metadata([1])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["from_dict", "from_bytes", "from_uri"])
def test_a_constructor_that_is_gone_says_what_there_is_instead(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"Checkpoint\.{name} was removed: .*Checkpoint"):
        getattr(Checkpoint, name)
    assert not hasattr(Checkpoint, "from_thin_air")


@pytest.mark.parametrize("metadata", [{"a": object()}, {"a": {1, 2}}, {(1, 2): 3}, ["a"]])
def test_metadata_that_is_no_json_is_a_type_error_too(saved: Path, metadata: Any) -> None:
    checkpoint = Checkpoint.from_directory(saved)

    for refuses in (checkpoint.set_metadata, checkpoint.update_metadata):
        with pytest.raises(TypeError) as refused:
            refuses(metadata)
        assert isinstance(refused.value, ConfigError)
    assert checkpoint.get_metadata() == {}


def test_a_folder_that_is_in_no_run_opens_its_own_store_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []

    def counted(location: Any, *more: Any) -> Any:
        opened.append(location)
        return open_store(location, *more)

    monkeypatch.setattr("holdfast.checkpoint.checkpoint.open_store", counted)

    with Checkpoint.from_directory(tmp_path).as_directory():
        pass

    assert opened == [str(tmp_path)]


def test_a_disk_that_cannot_tell_whether_a_folder_is_in_a_run_is_no_leave_to_trust_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    checkpoint = Checkpoint.from_directory(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("holdfast.checkpoint.checkpoint.os.lstat", broken)
        patched.setattr("holdfast.storage.local.disk.PosixDisk.stat", broken)
        with pytest.raises(StoreError), checkpoint.as_directory():
            pass

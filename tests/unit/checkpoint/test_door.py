"""Opening a checkpoint of a run gives what was saved, or an error that names the damage."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint import Checkpoint, verification
from holdfast.checkpoint.checkpoint import trust
from holdfast.checkpoint.manifests import manifest_key
from holdfast.errors import ConfigError, Damaged, StoreError
from holdfast.storage.locate import open_store
from holdfast.storage.verify import damage_of
from tests.runs import commit, save_files

NAME = "checkpoint_000000"
Open = Callable[[Checkpoint], Any]


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    files = {"model.pt": b"weights", ".metadata.json": b'{"kind": 1}'}
    commit(tmp_path / "run", save_files(tmp_path / "files", files))
    return tmp_path / "run"


def entered(checkpoint: Checkpoint) -> str:
    with checkpoint.as_directory() as folder:
        return folder


WAYS = pytest.mark.parametrize(
    "open_it",
    [entered, Checkpoint.to_directory, Checkpoint.verify, Checkpoint.get_metadata],
    ids=["as_directory", "to_directory", "verify", "get_metadata"],
)


@WAYS
@pytest.mark.parametrize("found_by", ["its run", "its path", "a link", "a pickle"])
def test_a_damaged_checkpoint_is_not_opened(run_path: Path, open_it: Open, found_by: str) -> None:
    path = run_path / NAME
    for name in ("model.pt", ".metadata.json"):
        (path / name).write_bytes((path / name).read_bytes()[:-2] + b"2}")
    link = run_path.with_name("link")
    link.symlink_to(path)
    checkpoint = {
        "its run": Checkpoint.in_run(open_store(run_path), NAME),
        "its path": Checkpoint(path),
        "a link": Checkpoint(link),
        "a pickle": pickle.loads(pickle.dumps(Checkpoint(path))),
    }[found_by]

    with pytest.raises(Damaged, match="does not match its digest"):
        open_it(checkpoint)


@WAYS
def test_a_checkpoint_whose_manifest_is_damaged_is_not_opened(
    run_path: Path, open_it: Open
) -> None:
    manifest = run_path / manifest_key(NAME)
    manifest.write_bytes(manifest.read_bytes().replace(b"model", b"modem"))

    with pytest.raises(Damaged, match="checksum"):
        open_it(Checkpoint(run_path / NAME))


def test_a_checkpoint_of_a_run_without_its_manifest_is_not_opened(run_path: Path) -> None:
    checkpoint = Checkpoint.in_run(open_store(run_path), NAME)
    (run_path / manifest_key(NAME)).unlink()

    with pytest.raises(Damaged, match="the manifest is missing"):
        entered(checkpoint)


def test_a_folder_of_the_users_own_is_opened_as_it_is(run_path: Path) -> None:
    own = save_files(run_path / "mine", {"model.pt": b"anything"})

    assert entered(Checkpoint(own)) == str(own)
    assert Checkpoint(own).get_metadata() == {}


def test_a_checkpoint_is_read_once_per_process(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def counted(store: Any, prefix: str, *more: Any) -> list[str]:
        reads.append(prefix)
        return damage_of(store, prefix, *more)

    monkeypatch.setattr(verification, "damage_of", counted)
    for checkpoint in (Checkpoint(run_path / NAME), Checkpoint.in_run(open_store(run_path), NAME)):
        assert (Path(entered(checkpoint)) / "model.pt").read_bytes() == b"weights"

    assert reads == [NAME]


def test_what_the_driver_has_verified_its_worker_does_not_read_again(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> list[str]:
        raise AssertionError("it was read")

    monkeypatch.setattr(verification, "damage_of", never)
    checkpoint = trust(Checkpoint(run_path / NAME))
    assert entered(checkpoint) == str(run_path / NAME)

    with pytest.raises(AssertionError, match="it was read"):  # later readers do
        entered(pickle.loads(pickle.dumps(checkpoint)))


def test_one_that_cannot_be_read_is_not_called_damaged(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: Any) -> list[str]:
        raise StoreError("no answer")

    monkeypatch.setattr(verification, "damage_of", denied)
    with pytest.raises(StoreError, match="no answer"):
        entered(Checkpoint(run_path / NAME))


def test_verify_says_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        Checkpoint(tmp_path / "nowhere").verify()
